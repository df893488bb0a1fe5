"""Compilers and tracers within a scope: compiled models are instrumented, traces are unharmed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import Record, after, before
from plain_models import perceptron
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode
from watching import everything, types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

X = torch.randn(4, 3)


def network() -> nn.Module:
    torch.manual_seed(0)
    return perceptron().eval()


class Backend:
    """Compiles to what was captured, and counts how often that is done and run."""

    def __init__(self) -> None:
        self.compiled = self.ran = 0

    def __call__(self, module: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.compiled += 1

        def run(*args: Any) -> Any:
            self.ran += 1
            return module.forward(*args)

        return run


@pytest.fixture(autouse=True)
def _nothing_compiled() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


# torch.compile


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_compiled_model_is_instrumented_within_a_scope_and_compiled_after_it(
    fullgraph: bool,
) -> None:
    backend, tool = Backend(), Record()
    compiled = torch.compile(network(), backend=backend, fullgraph=fullgraph)
    expected = compiled(X)
    assert (backend.compiled, backend.ran) == (1, 1)
    with amanda.apply(tool):
        within = compiled(X)
        assert torch.equal(within, expected)
    assert types(tool.ran) == ["linear", "relu_", "linear"]
    assert (backend.compiled, backend.ran) == (1, 1)
    assert torch.equal(compiled(X), expected)
    assert (backend.compiled, backend.ran) == (1, 2)
    assert len(tool.ran) == 3


def test_a_model_compiled_within_a_scope_is_compiled_after_it() -> None:
    model, backend, tool = network(), Backend(), Record()
    with amanda.apply(tool):
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        within = compiled(X)
    assert types(tool.ran) == ["linear", "relu_", "linear"]
    assert backend.compiled == 0
    assert torch.equal(compiled(X), within)
    assert (backend.compiled, backend.ran) == (1, 1)


@pytest.mark.parametrize("within", [False, True])
def test_a_module_compiled_in_place(within: bool) -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 2

    model, backend, tool = Doubled(3, 3), Backend(), Record()
    if not within:
        model.compile(backend=backend)
    with amanda.apply(tool):
        if within:
            model.compile(backend=backend)
        model(X)
    assert types(tool.ran) == ["linear", "mul"]
    assert backend.ran == 0
    model(X)
    assert backend.ran == 1


def test_a_compiled_function_is_instrumented_within_a_scope() -> None:
    backend, tool = Backend(), Record()
    compiled = torch.compile(lambda x: x.sin() + 1, backend=backend)
    expected = compiled(X)
    with amanda.apply(tool):
        for _ in range(2):
            assert torch.equal(compiled(X), expected)
    assert types(tool.ran) == ["sin", "add"] * 2
    assert backend.ran == 1


def test_a_scope_within_a_compiled_function_is_run_as_it_is_written() -> None:
    model, backend, tool = network(), Backend(), after("linear", torch.zeros_like)

    def run(x: Tensor) -> Tensor:
        with amanda.apply(tool):
            zeros: Tensor = model(x)
        return zeros

    compiled = torch.compile(run, backend=backend)
    for _ in range(2):
        assert not compiled(X).any()
    assert not run(X).any()
    assert backend.ran == 0
    assert model(X).any()
    assert torch.compile(model, backend=backend)(X).any()
    assert backend.ran == 1


def test_a_substitution_applies_to_a_compiled_model() -> None:
    compiled = torch.compile(network(), backend="eager")
    compiled(X)
    with amanda.apply(after("linear", torch.zeros_like)):
        assert not compiled(X).any()
    assert compiled(X).any()


def test_gradients_of_a_compiled_model() -> None:
    model = network()
    compiled = torch.compile(model, backend="aot_eager")

    def gradients() -> list[Tensor]:
        return list(torch.autograd.grad(compiled(X).square().sum(), list(model.parameters())))

    expected = gradients()
    forward, backward, gradient = everything()
    with amanda.apply(forward, backward, gradient):
        within = gradients()
    for one, other, again in zip(within, expected, gradients(), strict=True):
        assert torch.allclose(one, other)
        assert torch.equal(again, other)
    assert "ReluBackward0" in backward.ran
    assert len(gradient.analyzed) == 5


def test_a_graph_compiled_before_the_scope_has_its_backward_in_it() -> None:
    compiled, tools = torch.compile(network(), backend="aot_eager"), everything()
    loss = compiled(X.clone().requires_grad_()).sum()
    with amanda.apply(*tools):
        loss.backward()
    assert tools[0].ran == []


def test_compiling_goes_on_in_the_outer_program_after_an_error() -> None:
    backend = Backend()
    compiled = torch.compile(network(), backend=backend)

    def fail(*tensors: Tensor) -> None:
        raise ZeroDivisionError

    with (
        pytest.raises(amanda.RoutineError),
        amanda.apply(before("linear", fail)),
    ):
        compiled(X)
    compiled(X)
    assert backend.ran == 1


# torch.export and other tracers


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("decomposed", [False, True])
def test_export(strict: bool, decomposed: bool) -> None:
    def export() -> torch.export.ExportedProgram:
        program = torch.export.export(network(), (X,), strict=strict)
        return program.run_decompositions() if decomposed else program

    expected, tools = export(), everything()
    with amanda.apply(*tools):
        program = export()
    assert program.graph_module.code == expected.graph_module.code
    assert program.state_dict.keys() == expected.state_dict.keys()
    assert set(types(tools[0].analyzed)) == {"uniform_"}  # to make the model


def test_an_exported_program_is_instrumented() -> None:
    program, tool = torch.export.export(network(), (X,)).module(), Record("linear")
    expected = program(X)
    with amanda.apply(tool):
        assert torch.equal(program(X), expected)
    assert len(tool.ran) == 2


def test_export_with_a_dynamic_batch() -> None:
    batch = torch.export.Dim("batch", min=2)
    with amanda.apply(*everything()):
        program = torch.export.export(network(), (X,), dynamic_shapes=({0: batch},))
    y = torch.randn(7, 3)
    assert torch.allclose(program.module()(y), network()(y))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("pre_dispatch", [False, True])
def test_make_fx(mode: str, pre_dispatch: bool) -> None:
    def trace() -> torch.fx.GraphModule:
        return make_fx(
            lambda x: torch.tanh(x @ x.T).sum(), tracing_mode=mode, pre_dispatch=pre_dispatch
        )(X)

    expected, tools = trace(), everything()
    with amanda.apply(*tools):
        graph = trace()
    assert graph.code == expected.code
    if not pre_dispatch:
        assert tools[0].ran == []


def test_make_fx_of_a_gradient() -> None:
    def trace() -> torch.fx.GraphModule:
        return make_fx(torch.func.grad(lambda x: torch.tanh(x @ x.T).sum()))(X)

    expected = trace()
    with amanda.apply(*everything()):
        graph = trace()
    assert graph.code == expected.code


def test_symbolic_trace() -> None:
    model, tool = network(), Record("linear")
    with amanda.apply(tool):
        graph = torch.fx.symbolic_trace(model)
        assert torch.equal(graph(X), model(X))
    assert graph.code == torch.fx.symbolic_trace(model).code
    assert len(tool.ran) == 4


# Operators that take functions, and modes


def test_a_conditional() -> None:
    def choose(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    positive, negative, tool = X.abs(), -X.abs(), Record(["sin", "cos"])
    with amanda.apply(tool):
        chosen = [choose(positive), choose(negative)]
    assert types(tool.ran) == ["sin", "cos"]
    assert torch.equal(chosen[0], positive.sin())
    assert torch.equal(chosen[1], negative.cos())


def test_a_loop_operator() -> None:
    from torch._higher_order_ops.while_loop import while_loop

    with amanda.apply(*everything()):
        count, y = while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), X))
    assert count == 3
    assert torch.equal(y, X * 8)


def test_a_custom_function_under_vmap() -> None:
    class Cube(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return x**3

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return 3 * x**2 * grad

    tools = everything()
    with amanda.apply(*tools):
        gradient = torch.func.vmap(torch.func.grad(lambda x: Cube.apply(x).sum()))(X)
    assert torch.allclose(gradient, 3 * X**2)
    assert "Cube" in types(tools[0].ran)


def test_a_mode_counts_what_the_program_runs() -> None:
    def count() -> int:
        with FlopCounterMode(display=False) as mode:
            model(X).sum().backward()
        return mode.get_total_flops()

    model = network()
    expected = count()
    with amanda.apply(*everything()):
        assert count() == expected


# Tensors without values


def test_fake_tensors_are_left_alone() -> None:
    tools, model = everything(), network()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        expected = model(mode.from_tensor(X))
    with amanda.apply(*tools), mode:
        y = model(mode.from_tensor(X))
        y.sum().backward()
    assert isinstance(y, FakeTensor)
    assert (y.shape, y.dtype, y.device) == (expected.shape, expected.dtype, expected.device)
    assert tools[0].ran == []


def test_fake_tensors_outside_of_their_mode_are_left_alone() -> None:
    tools, mode = everything(), FakeTensorMode()
    fake = mode.from_tensor(X)
    with amanda.apply(*tools):
        y = (fake @ fake.T).relu().sum()
    assert isinstance(y, FakeTensor)
    assert tools[0].ran == []


def test_a_model_made_under_a_fake_mode() -> None:
    with amanda.apply(*everything()), FakeTensorMode():
        model = network()
        y = model(torch.empty(4, 3))
        y.sum().backward()
    assert y.shape == (4, 2)
    assert model[0].weight.grad.shape == (8, 3)


def test_meta_tensors_have_operators_but_no_values() -> None:
    seen = []

    def analyze(ctx: amanda.OpContext) -> None:
        seen.append(ctx.inputs[1].shape)
        with pytest.raises(amanda.ValueUnavailableError):
            ctx.value(1)

    tool = amanda.Tool()
    tool.add_inst_for_op(analyze, ops=["linear"])
    model, x = network().to("meta"), X.to("meta")
    with amanda.apply(tool, *everything()):
        y = model(x)
        y.sum().backward()
    assert (y.device.type, y.shape) == ("meta", (4, 2))
    assert seen == [(8, 3), (2, 8)]
    assert model[0].weight.grad.shape == (8, 3)
