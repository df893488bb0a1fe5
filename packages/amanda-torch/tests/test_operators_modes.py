"""Operators on tensors of other kinds, and next to modes that intercept operators too."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import amanda
import pytest
import torch
from amanda.testing.probes import (
    INSERTIONS,
    Insert,
    Observe,
    Record,
    after,
    before,
    nothing,
    recorded,
    replace,
    under,
)
from leaves import leaf
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode

if TYPE_CHECKING:
    from collections.abc import Callable

V = torch.randn(4, 4)
W = torch.randn(4, 4)


class DispatchLog(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class FunctionLog(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


def step(weight: Tensor = W) -> tuple[Tensor, Tensor]:
    """The output of a layer, and the gradient of its weight."""
    weight = weight.clone().requires_grad_()
    y = functional.linear(V, weight).relu()
    y.sum().backward()
    assert weight.grad is not None
    return y.detach(), weight.grad


nestings = pytest.mark.parametrize("inside", [True, False], ids=["mode in scope", "scope in mode"])
modes = pytest.mark.parametrize("mode", [DispatchLog, FunctionLog, FlopCounterMode])


def both(mode: Any, tool: amanda.Tool, inside: bool) -> Any:
    """A step with a mode and an active tool, one within the other."""
    if inside:
        with amanda.apply(tool), mode:
            return step()
    with mode, amanda.apply(tool):
        return step()


@nestings
def test_a_mode_sees_the_same_next_to_a_tool_that_looks_at_gradients(inside: bool) -> None:
    alone, together = DispatchLog(), DispatchLog()
    with alone:
        step()
    both(together, Observe(), inside)
    assert together.seen == alone.seen


def test_a_profile_lists_the_same_next_to_a_tool_that_looks_at_gradients() -> None:
    def counts() -> Counter[str]:
        with torch.profiler.profile() as profile:
            step()
        return Counter({e.key: e.count for e in profile.key_averages()})

    plain = counts()
    more = under(Observe(), counts) - plain
    assert {key.rpartition(": ")[2] for key in more} == {"_BoundaryBackward"}


@nestings
@modes
def test_a_mode_sees_the_same_next_to_an_observing_tool(mode: Any, inside: bool) -> None:
    options = {"display": False} if mode is FlopCounterMode else {}
    alone, together = mode(**options), mode(**options)
    with alone:
        expected = step()
    torch.testing.assert_close(both(together, Record(), inside), expected, rtol=0, atol=0)
    if mode is FlopCounterMode:
        assert together.get_total_flops() == alone.get_total_flops() == 2 * 2 * 4 * 4 * 4
    else:
        assert together.seen == alone.seen


@nestings
@modes
def test_a_tool_sees_the_same_next_to_a_mode(mode: Any, inside: bool) -> None:
    options = {"display": False} if mode is FlopCounterMode else {}
    tool = Record(["linear", "relu"])
    both(mode(**options), tool, inside)
    assert tool.types == ["linear", "relu"]


@nestings
@modes
def test_a_tool_substitutes_next_to_a_mode(mode: Any, inside: bool) -> None:
    options = {"display": False} if mode is FlopCounterMode else {}
    tool = before("linear", lambda w: w * 2, inputs=[1])
    torch.testing.assert_close(both(mode(**options), tool, inside), step(2 * W))


class Called(torch.autograd.Function):
    """A Function is called by Python, as a module is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad * 2


class Calling(nn.Module):
    """A model of modules that write in place and return their input, and of a Function."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Identity())
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return Called.apply(self.dropout(self.layers(x)))  # type: ignore[no-any-return,no-untyped-call]


class LooksAtCalls(Insert):
    """Looks at modules in all ways, and at the Function."""

    def __init__(self) -> None:
        super().__init__(INSERTIONS, ["Called", "dropout"], nothing)
        self.add_inst_for_module(self.look_at_module)
        self.add_inst_for_module(lambda ctx: None, require_outputs=True)

    def look_at_module(self, ctx: amanda.OpContext) -> None:
        ctx.insert_before_op(nothing)
        ctx.insert_after_op(nothing)
        ctx.insert_on_grad_inputs(nothing)


@pytest.mark.parametrize("mode", [DispatchLog, FunctionLog])
def test_a_mode_sees_nothing_of_how_calls_are_looked_at(mode: Any) -> None:
    model, alone, together = Calling(), mode(), mode()
    with alone:
        model(V)
    with amanda.apply(LooksAtCalls()), together:
        model(V)
    assert together.seen == alone.seen


@pytest.mark.parametrize("differentiable", [False, True])
def test_what_a_routine_computes_at_a_module_is_shown_to_modes(differentiable: bool) -> None:
    tool, mode = amanda.Tool(), FunctionLog()

    def routine(y: Tensor) -> Tensor:
        return torch.sinc(y)

    tool.add_inst_for_module(
        lambda ctx: ctx.insert_after_op(routine, differentiable=differentiable), modules=["layers"]
    )
    with amanda.apply(tool), mode:
        Calling()(V)
    assert mode.seen.count("sinc") == 1


def test_what_routines_make_at_a_module_is_on_the_default_device() -> None:
    """That is a mode too, which an analysis and a routine are under as the program is."""
    tool, devices = amanda.Tool(), []

    def make(*tensors: Tensor) -> None:
        devices.append(torch.ones(1).device.type)

    def analyze(ctx: amanda.OpContext) -> None:
        make()
        ctx.insert_before_op(make)

    tool.add_inst_for_module(analyze, modules=["layers"])
    with amanda.apply(tool), torch.device("meta"):
        Calling()(torch.ones(2, 4))
    assert devices == ["meta", "meta"]


# Subclasses of Tensor


class Named(Tensor):
    """One that looks at functions."""

    log: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.log.append(getattr(func, "__name__", "?"))
        return super().__torch_function__(func, types, args, kwargs or {})


class Plain(Tensor):
    """One that looks at nothing."""


@pytest.mark.parametrize("cls", [Named, Plain])
@pytest.mark.parametrize("insertion", ["insert_before_op", "insert_after_op", "replace_op"])
@pytest.mark.parametrize("differentiable", [False, True])
def test_a_call_gives_tensors_of_the_class_that_it_does(
    cls: type[Tensor], insertion: str, differentiable: bool
) -> None:
    """Where Python calls it too: a module, and a Function, which is run on copies."""

    def triple(x: Tensor) -> Tensor:
        assert type(x) is cls
        return x * 3

    def analyze(ctx: amanda.OpContext) -> None:
        getattr(ctx, insertion)(triple, differentiable=differentiable)

    x = torch.ones(2, 4).as_subclass(cls).requires_grad_()
    for register, call in (
        (lambda t: t.add_inst_for_op(analyze, ops=["Called"]), Called.apply),
        (lambda t: t.add_inst_for_module(analyze), nn.Identity()),
    ):
        tool = amanda.Tool()
        register(tool)
        with amanda.apply(tool):
            assert type(call(x)) is cls


class Wrapped(Tensor):
    """One that looks at operators, and holds another tensor."""

    log: ClassVar[list[str]] = []
    element: Tensor

    @staticmethod
    def __new__(cls, element: Tensor) -> Wrapped:
        return Tensor._make_wrapper_subclass(
            cls,
            element.shape,
            strides=element.stride(),
            dtype=element.dtype,
            device=element.device,
            requires_grad=element.requires_grad,
        )

    def __init__(self, element: Tensor) -> None:
        self.element = element.detach()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.log.append(str(func))
        args, kwargs = tree_map_only(Wrapped, lambda w: w.element, (args, kwargs or {}))
        return tree_map_only(Tensor, Wrapped, func(*args, **kwargs))


def plain(tensor: Tensor) -> Tensor:
    return tensor.element if isinstance(tensor, Wrapped) else tensor.as_subclass(Tensor)


subclasses = pytest.mark.parametrize(
    "wrap", [lambda t: t.as_subclass(Named), Wrapped], ids=["function", "dispatch"]
)


@subclasses
def test_a_subclass_is_handled_as_it_is_without_tools(wrap: Callable[[Tensor], Tensor]) -> None:
    x = wrap(V)
    log = type(x).log

    def run() -> Tensor:
        log.clear()
        return functional.linear(x, W).relu()

    expected, calls = run(), list(log)
    for tool in (Record(), Record("relu"), after("linear", lambda y: None)):
        result = under(tool, run)
        assert type(result) is type(x)
        assert log == calls
        assert torch.equal(plain(result), plain(expected))
    assert recorded(run) == ["linear", "relu"]


@subclasses
def test_a_subclass_with_substitutes(wrap: Callable[[Tensor], Tensor]) -> None:
    x = wrap(V)
    for tool, expected in [
        (after("relu", lambda y: y * 2), V.relu() * 2),
        (before("relu", lambda x: x * 2), (V * 2).relu()),
        (replace("relu", lambda x: x + 1), V + 1),
    ]:
        result = under(tool, lambda: x.relu())
        assert type(result) is type(x)
        torch.testing.assert_close(plain(result), expected)
    masked = under(before("linear", lambda w: w * 2, inputs=[1]), lambda: functional.linear(x, W))
    torch.testing.assert_close(plain(masked), functional.linear(V, 2 * W))


@subclasses
def test_gradients_of_a_subclass(wrap: Callable[[Tensor], Tensor]) -> None:
    for tool in (Observe(), after("relu", lambda y: y * 2)):
        x = wrap(V.clone()).requires_grad_()
        under(tool, lambda x=x: x.relu()).sum().backward()
        assert x.grad is not None
        torch.testing.assert_close(plain(x.grad), (V > 0).float())


# Nested, sparse and quantized tensors


def nested(layout: torch.layout, requires_grad: bool = False) -> Tensor:
    parts = [torch.randn(2, 4), torch.randn(3, 4)]
    return torch.nested.nested_tensor(parts, layout=layout, requires_grad=requires_grad)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors(layout: torch.layout) -> None:
    x = nested(layout)

    def run() -> list[Tensor]:
        return list(functional.linear(x, W).relu().unbind())

    torch.testing.assert_close(under(Observe(), run), run(), rtol=0, atol=0)
    doubled = [2 * part for part in run()]
    torch.testing.assert_close(under(after("relu", lambda y: y * 2), run), doubled)
    torch.testing.assert_close(under(before("linear", lambda w: w * 2, inputs=[1]), run), doubled)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_gradients_of_nested_tensors() -> None:
    for layout in (torch.strided, torch.jagged):
        x, weight = nested(layout, requires_grad=True), leaf(4, 4)
        y = under(Observe(), lambda x=x, w=weight: functional.linear(x, w))
        sum(part.sum() for part in y.unbind()).backward()
        total = torch.cat([part.detach() for part in x.unbind()]).sum(0)
        torch.testing.assert_close(weight.grad, total.expand(4, 4))
    x = nested(torch.jagged, requires_grad=True)
    y = under(after("sin", lambda y: y * 2), lambda: x.sin())
    sum(part.sum() for part in y.unbind()).backward()
    for part, grad in zip(x.unbind(), x.grad.unbind(), strict=True):
        torch.testing.assert_close(grad, part.detach().cos())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_autograd_has_no_functions_for_is_refused() -> None:
    x = nested(torch.strided, requires_grad=True)
    with pytest.raises(amanda.RoutineError, match=r"strided layout.*jagged"):
        under(after("relu", lambda y: y * 2), lambda: x.relu())


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_sparse_tensors() -> None:
    dense = V.relu()
    x, weight = dense.to_sparse().requires_grad_(), leaf(4, 4)
    plain = torch.sparse.mm(x, weight)
    for tool, factor in [
        (Observe(), 1),
        (before("_sparse_mm", lambda s: s * 2, inputs=[0]), 2),
        (before("_sparse_mm", lambda d: d * 2, inputs=[1]), 2),
        (after("_sparse_mm", lambda y: y * 2), 2),
    ]:
        result = under(tool, lambda: torch.sparse.mm(x, weight))
        torch.testing.assert_close(result, factor * plain)
        result.sum().backward()
    assert x.grad is not None
    compressed = dense.to_sparse_csr()
    torch.testing.assert_close(under(Observe(), lambda: compressed @ V), dense @ V)


def test_sparse_gradients() -> None:
    layer = nn.Embedding(5, 4, sparse=True)
    indices = torch.tensor([1, 2, 2])
    under(Observe(), lambda: layer(indices)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.is_sparse
    expected = torch.zeros(5, 4).index_add_(0, indices, torch.ones(3, 4))
    torch.testing.assert_close(layer.weight.grad.to_dense(), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_quantized_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    quantization = torch.ao.quantization
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    dynamic = quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    assert torch.equal(under(Observe(), lambda: dynamic(V)), dynamic(V))
    assert "quantized::linear_dynamic" in recorded(lambda: dynamic(V))

    engine = next(e for e in torch.backends.quantized.supported_engines if e != "none")
    monkeypatch.setattr(torch.backends.quantized, "engine", engine)
    stubs = nn.Sequential(quantization.QuantStub(), model, quantization.DeQuantStub()).eval()
    stubs.qconfig = quantization.get_default_qconfig(engine)
    prepared = quantization.prepare(stubs)
    prepared(V)
    static = quantization.convert(prepared)
    plain = static(V)
    assert torch.equal(under(Observe(), lambda: static(V)), plain)
    assert recorded(lambda: static(V), "quantized::linear") == ["quantized::linear"]
    tool = after("dequantize", lambda y: y * 2)
    assert torch.equal(under(tool, lambda: static(V)), 2 * plain)
    tool = before("quantize_per_tensor", lambda x: x * 0)
    assert torch.equal(under(tool, lambda: static(V)), static(0 * V))
