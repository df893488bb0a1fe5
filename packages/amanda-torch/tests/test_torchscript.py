"""TorchScript runs as it is written in a scope, however it was optimized before it."""

import functools
import io
from collections.abc import Callable

import amanda
import pytest
import silero_vad
import torch
from amanda.testing.probes import Record, before, fail
from plain_models import perceptron
from torch import Tensor, nn
from watching import GradientWatch, everything, types

X = torch.randn(4, 3)


def network() -> nn.Module:
    torch.manual_seed(0)
    return perceptron().eval()


script = pytest.mark.filterwarnings("ignore:`torch.jit.*` is deprecated")


@script
def test_a_traced_module() -> None:
    model, tools = network(), everything()
    with amanda.apply(*tools):
        traced = torch.jit.trace(model, X)
    assert traced.code == torch.jit.trace(model, X).code
    assert torch.equal(traced(X), model(X))


@script
@pytest.mark.parametrize("freeze", [False, True])
def test_a_scripted_module_is_instrumented(freeze: bool) -> None:
    model, tool = network(), Record()
    with amanda.apply(tool):
        scripted = torch.jit.script(model)
        if freeze:
            scripted = torch.jit.freeze(scripted)
        start = len(tool.ran)
        runs = []
        for _ in range(4):  # the first ones are profiled, then it is optimized
            assert torch.equal(scripted(X), model(X))
            runs.append(tool.ran[start:])
            start = len(tool.ran)
    assert types(runs[0]) == ["linear", "relu_", "linear"] * 2
    assert len(set(runs[0])) == 6
    assert runs == [runs[0]] * 4


@script
def test_operators_of_a_scripted_function_are_told_apart() -> None:
    @torch.jit.script
    def twice(x: Tensor) -> Tensor:
        return x.relu().neg().relu()

    tool = Record()
    with amanda.apply(tool):
        for _ in range(4):
            assert torch.equal(twice(X), X.relu().neg().relu())
    scripted = tool.ran[:3]
    assert scripted == ["relu", "neg", "relu#2"]
    assert tool.ran == [*scripted, "relu#3", "neg#2", "relu#4"] * 4


@script
def test_gradients_through_a_scripted_module() -> None:
    model = network()
    scripted = torch.jit.script(model)

    def gradients() -> list[Tensor]:
        return list(torch.autograd.grad(scripted(X).square().sum(), list(model.parameters())))

    expected = [gradients() for _ in range(4)][-1]
    with amanda.apply(*everything()):
        runs = [gradients() for _ in range(4)]
    for run in runs:
        for one, other in zip(run, expected, strict=True):
            assert torch.allclose(one, other)


class Masked(nn.Module):
    """A layer, whose result a mask makes half of."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[1.0, 2.0, 3.0]]))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight).exp()


@torch.jit.interface
class Layer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class ByInterface(nn.Module):
    layer: Layer

    def __init__(self) -> None:
        super().__init__()
        self.layer = Masked()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer.forward(x)


def by_interface(layer: Layer, x: Tensor) -> Tensor:
    return layer.forward(x)


def copied(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    loaded: torch.jit.ScriptModule = torch.jit.load(file)
    return loaded


@script
@pytest.mark.parametrize("make", ["module", "within another", "loaded", "argument"])
def test_what_is_called_through_an_interface_runs_as_written_too(make: str) -> None:
    module = torch.jit.script(ByInterface())
    call: Callable[[Tensor], Tensor] = module
    if make == "within another":
        call = torch.jit.script(nn.Sequential(nn.Identity(), ByInterface()))
    elif make == "loaded":
        call = copied(module)
    elif make == "argument":
        call = functools.partial(torch.jit.script(by_interface), module.layer)
    x = torch.tensor([[0.1, 0.2, 0.3]], requires_grad=True)
    for _ in range(4):  # it is optimized, with a gradient of its own
        call(x).sum().backward()
    half = torch.tensor([[0.5, 1.0, 1.5]])
    expected = half * (x.detach() @ half.T).exp()
    for _ in range(3):
        x.grad, watch = None, GradientWatch(["exp"])
        mask = before("linear", lambda weight: weight / 2, inputs=[1])
        with amanda.apply(mask, watch):
            call(x).sum().backward()
        assert len(watch.analyzed) == 1
        assert torch.allclose(x.grad, expected)


class Forked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = Masked()

    def forward(self, x: Tensor) -> Tensor:
        return torch.jit.wait(torch.jit.fork(self.layer, x))


@script
def test_what_runs_in_a_thread_of_torchscript_is_said_to_be_unseen() -> None:
    module, x = torch.jit.script(Forked()), torch.ones(1, 3)
    tool = Record()
    with amanda.apply(tool), pytest.warns(amanda.AmandaWarning, match=r"torch\.jit\.fork.*thread"):
        y = module(x)
    assert tool.ran == []
    assert torch.equal(y, Masked()(x))


@script
def test_what_is_optimized_for_inference_is_said_to_be_unseen() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    optimized, x = torch.jit.optimize_for_inference(torch.jit.script(model)), torch.ones(1, 3, 4, 4)
    expected, tool = optimized(x), Record("conv2d")
    if optimized.graph.findNode("prim::mkldnn_convolution") is None:
        pytest.skip("this machine's PyTorch does not optimize it")
    with amanda.apply(tool), pytest.warns(amanda.AmandaWarning, match="below the dispatcher"):
        y = optimized(x)
    assert tool.ran == []
    assert torch.equal(y, expected)


@script
def test_a_published_torchscript_model() -> None:
    model = silero_vad.load_silero_vad(onnx=False)
    chunks = [torch.randn(1, 512) / 10 for _ in range(3)]

    def detect() -> list[Tensor]:
        model.reset_states()
        return [model(chunk, 16000) for chunk in chunks]

    expected, tool = detect(), Record()
    with amanda.apply(tool):
        per_call = []
        model.reset_states()
        for chunk, plain in zip(chunks, expected, strict=True):
            start = len(tool.ran)
            assert torch.equal(model(chunk, 16000), plain)
            per_call.append(tool.ran[start:])
        known = len(tool.analyzed)
        detect()
        detect()
    assert {"conv1d", "lstm_cell", "sigmoid"} <= set(types(per_call[0]))
    assert per_call[1] == per_call[2]
    assert len(set(per_call[1])) == len(per_call[1])
    assert len(tool.analyzed) < known + len(per_call[0])  # another line calls it: two at the most
    for one, other in zip(detect(), expected, strict=True):
        assert torch.equal(one, other)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4)
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.lstm(x.unsqueeze(0))
        return self.out(y.squeeze(0))


SCRIPTED: dict[str, Callable[[nn.Module], nn.Module]] = {
    "scripted": torch.jit.script,
    "traced": lambda model: torch.jit.trace(model, X),
    "a child": lambda model: nn.Sequential(torch.jit.script(model)),
    "frozen": lambda model: torch.jit.freeze(torch.jit.script(model), preserved_attrs=["training"]),
}


@script
@pytest.mark.parametrize("make", SCRIPTED.values(), ids=SCRIPTED)
@pytest.mark.parametrize("recurrent", [False, True], ids=["layers", "lstm"])
@pytest.mark.parametrize("optimized_before", [False, True])
def test_a_substitution_and_its_gradients_are_the_same_at_every_call(
    make: Callable[[nn.Module], nn.Module], recurrent: bool, optimized_before: bool
) -> None:
    torch.manual_seed(0)
    model = (Recurrent() if recurrent else network()).eval()
    scripted = make(model)

    def gradient(module: nn.Module) -> Tensor:
        x = X.clone().requires_grad_()
        (found,) = torch.autograd.grad(module(x).square().sum(), x)
        return found

    if optimized_before:
        for _ in range(3):
            plain = gradient(scripted)

    def halved(weight: Tensor) -> Tensor:
        return weight * 0.5

    tool = before("linear", halved, inputs=[1])
    with amanda.apply(tool):
        expected = gradient(model)
        runs = [gradient(scripted) for _ in range(4)]
    for run in runs:
        torch.testing.assert_close(run, expected)
    assert not torch.allclose(expected, gradient(model))
    if optimized_before:
        torch.testing.assert_close(gradient(scripted), plain)


@script
def test_gradients_of_scripted_operators_are_seen_at_every_call() -> None:
    forward, backward, gradient = everything()
    scripted = torch.jit.script(network())
    with amanda.apply(forward, backward, gradient):
        counts = []
        for _ in range(4):
            scripted(X.clone().requires_grad_()).sum().backward()
            grads = sum(map(len, gradient.outputs.values()))
            counts.append((len(forward.ran), len(backward.ran), grads))
    assert all(counts[0])
    assert counts == [tuple(n * turn for n in counts[0]) for turn in range(1, 5)]


@script
@pytest.mark.parametrize("optimized", [False, True])
def test_whether_torchscript_optimizes_is_as_before_a_scope(optimized: bool) -> None:
    def optimizes() -> bool:
        return bool(vars(torch._C)["_get_graph_executor_optimize"]())

    with torch.jit.optimized_execution(optimized):
        with amanda.apply(Record()):
            assert not optimizes()
            with amanda.disabled():
                assert optimizes() is optimized
            assert not optimizes()
        assert optimizes() is optimized


@script
@pytest.mark.parametrize("as_module", [False, True])
def test_an_error_of_a_routine_comes_out_as_it_is(as_module: bool) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.relu().neg()

    scripted = torch.jit.script(Model() if as_module else negative)
    outer = torch.jit.script(nn.Sequential(scripted)) if as_module else scripted
    cause = KeyError("of the tool")
    with amanda.apply(fail("neg", cause)):
        with pytest.raises(amanda.RoutineError, match="neg") as raised:
            outer(X)
        assert raised.value.__cause__ is cause
    assert torch.equal(outer(X), -X.relu())


def test_a_method_that_is_written_in_cpp_is_none_of_torchscript() -> None:
    weight = torch.ones(2, 3)
    packed = torch.ops.quantized.linear_prepack_fp16(weight, None)
    with amanda.apply(*everything()):
        unpacked, bias = packed.unpack()
    assert torch.equal(unpacked, weight)
    assert bias is None


@script
def test_an_error_of_the_script_stays_its_own() -> None:
    scripted = torch.jit.script(refuses)
    with pytest.raises(torch.jit.Error) as plain:
        scripted(X)
    with amanda.apply(Record()), pytest.raises(torch.jit.Error) as under:
        scripted(X)
    assert str(under.value) == str(plain.value)


def negative(x: Tensor) -> Tensor:
    return x.relu().neg()


def refuses(x: Tensor) -> Tensor:
    y = x.relu()
    if y.sum() > 0:
        raise ValueError("no")
    return y
