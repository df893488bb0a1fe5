"""Routines that only look at gradients see what others see, though they are shown it otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Grads = Sequence[Tensor | None]

X, W, B = torch.randn(3, 4), torch.randn(4, 4), torch.randn(4)
OPERATORS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "relu": lambda x, w, b: x.relu(),
    "exp": lambda x, w, b: x.exp(),  # saves what it gives
    "add": lambda x, w, b: x + b,
    "mul": lambda x, w, b: x * x,
    "layer_norm": lambda x, w, b: functional.layer_norm(x, [4], w[0], b),
    "linear": functional.linear,  # several nodes
    "linear of three dimensions": lambda x, w, b: functional.linear(x.sin()[None], w, b),
    "addmm": lambda x, w, b: torch.addmm(b, x, w),
    "matmul": lambda x, w, b: x @ w,
    "view": lambda x, w, b: x.view(4, 3),
    "reshape": lambda x, w, b: x.t().reshape(2, 6),
    "split": lambda x, w, b: x.split(2, 1)[0],
    "dropout": lambda x, w, b: functional.dropout(x, 0.0),
}


class Looks(amanda.Tool):
    """Keeps the gradients of the outputs and inputs of the operators that it looks at."""

    def __init__(self, annotated: bool) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[Tensor | None]]] = []
        self._annotated = annotated
        self.add_inst_for_gradient(self.look)

    def look(self, ctx: amanda.OpContext) -> None:
        def keep(*grads: Tensor | None, where: str):  # type: ignore[no-untyped-def]
            self.seen.append((where, [None if g is None else g.detach().clone() for g in grads]))

        if self._annotated:
            keep.__annotations__["return"] = None
        ctx.insert_on_grad_outputs(keep, where=f"{ctx.op_id} out")
        ctx.insert_on_grad_inputs(keep, where=f"{ctx.op_id} in")


def backward(y: Tensor, x: Tensor, *rest: Tensor) -> None:
    (y * y).sum().backward()


def of_one_input(y: Tensor, x: Tensor, *rest: Tensor) -> None:
    torch.autograd.grad((y * y).sum(), x)


def twice(y: Tensor, x: Tensor, *rest: Tensor) -> None:
    y.sum().backward(retain_graph=True)
    (y * y).sum().backward()


def of_gradients(y: Tensor, x: Tensor, *rest: Tensor) -> None:
    (grad,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    ((grad * grad).sum() + y.sum()).backward()


class Model(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.run = OPERATORS[name]

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.run(*tensors)


def run(name: str, goes_back: Callable[..., None], tool: amanda.Tool | None) -> list[Tensor | None]:
    """The gradients of the leaves after the second of two equal steps."""
    model = Model(name)
    with amanda.apply(*() if tool is None else (tool,)):
        for _ in range(2):  # in the first one it is analyzed
            leaves = [t.clone().requires_grad_() for t in (X, W, B)]
            if isinstance(tool, Looks):
                tool.seen.clear()
            goes_back(model(*leaves), *leaves)
    return [tensor.grad for tensor in leaves]


def same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b if a is None or b is None else torch.allclose(a, b)


@pytest.mark.parametrize("goes_back", [backward, of_one_input, twice, of_gradients])
@pytest.mark.parametrize("name", OPERATORS)
def test_who_only_looks_sees_what_others_see(name: str, goes_back: Callable[..., None]) -> None:
    looks, others = Looks(annotated=True), Looks(annotated=False)
    found = run(name, goes_back, looks)
    run(name, goes_back, others)
    assert all(map(same, found, run(name, goes_back, None)))
    assert len(looks.seen) == len(others.seen) > 0
    for where, grads in looks.seen:
        shown = [
            other for there, other in others.seen if there == where and all(map(same, grads, other))
        ]
        assert shown, where


def test_a_module_that_is_given_nothing_with_a_gradient_has_gradients_of_gradients() -> None:
    """Of its parameters, as in a product with their Hessian; to its input none goes."""
    layer, seen = nn.Linear(4, 1, bias=False), []
    tool = amanda.Tool()

    def keep(grad: Tensor | None) -> None:
        seen.append(grad)

    tool.add_inst_for_module(lambda ctx: ctx.insert_on_grad_inputs(keep))
    with amanda.apply(tool):
        y = layer(X).square().sum()
        (first,) = torch.autograd.grad(y, layer.weight, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), layer.weight)
    torch.testing.assert_close(second, 2 * X.sum(1) @ X[None])
    assert not seen


def test_what_gives_no_tensors_is_given_the_parameter_itself() -> None:
    """It may keep it in an object, as quantized modules do, and hand it out again."""
    bias = nn.Parameter(torch.ones(2))
    with amanda.apply(Looks(annotated=False)):
        packed = torch.ops.quantized.linear_prepack_fp16(torch.ones(2, 3), bias)
        assert packed.unpack()[1] is bias


class Tells(TorchDispatchMode):
    """Notes the operators that it is shown."""

    def __init__(self, seen: list[object]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen = seen

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self._seen.append(func)
        return func(*args, **(kwargs or {}))


def recurrent(x: Tensor, *weights: Tensor) -> Tensor:
    """Two layers, with dropout between them."""
    start = torch.zeros(2, 2, 4)
    result: Tensor = torch.lstm(x, (start, start), weights, True, 2, 0.5, True, False, False)[0]
    return result


def normalized(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """What is normalized, and a mean that running the operator writes to."""
    mean, variance = torch.zeros(2), torch.ones(2)
    return functional.instance_norm(x, mean, variance, weight, bias) + mean.sum()


def multiplied(*factors: Tensor) -> Tensor:
    """Two products of three matrices, which are computed in different orders by their sizes."""
    first, second = torch.linalg.multi_dot(factors[:3]), torch.linalg.multi_dot(factors[3:])
    return torch.cat([first.ravel(), second.ravel()])


LAYER = [(16, 4), (16, 4), (16,), (16,)]
OF_LEAVES: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "linear": (functional.linear, [(3, 4), (2, 4), (2,)]),
    "linear of three dimensions": (functional.linear, [(2, 3, 4), (2, 4), (2,)]),
    "bilinear": (lambda w, b: functional.bilinear(X, X, w, b), [(2, 4, 4), (2,)]),
    "matmul": (torch.matmul, [(2, 3, 4), (4, 2)]),
    "conv2d": (functional.conv2d, [(1, 1, 4, 4), (2, 1, 3, 3), (2,)]),
    "lstm": (recurrent, [(3, 2, 4), *LAYER, *LAYER]),
    "instance_norm": (normalized, [(3, 2, 4), (2,), (2,)]),
    "multi_dot": (multiplied, [(2, 3), (3, 40), (40, 5), (2, 30), (30, 4), (4, 50)]),
    "einsum": (lambda *t: torch.einsum("ij,kj->ik", *t), [(2, 3), (4, 3)]),
    "vstack": (lambda *t: torch.vstack(t), [(2,)] * 5),
}


@pytest.mark.parametrize("annotated", [False, True])
@pytest.mark.parametrize(("function", "shapes"), OF_LEAVES.values(), ids=OF_LEAVES)
def test_gradients_come_to_leaves_in_the_same_order(
    function: Callable[..., Tensor], shapes: list[tuple[int, ...]], annotated: bool
) -> None:
    """Their hooks may draw random numbers; what the program packs or counts it is shown once."""

    def run() -> list[object]:
        torch.manual_seed(0)
        seen: list[object] = []
        leaves = [torch.ones(shape, requires_grad=True) for shape in shapes]
        for i, leaf in enumerate(leaves):
            leaf.register_hook(lambda grad, i=i: seen.append(i))

        def pack(tensor: Tensor) -> Tensor:
            seen.append(tensor.shape)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), Tells(seen):
            y = function(*leaves)
        y.sum().backward()
        return [*seen, y.tolist()]

    plain = run()
    with amanda.apply(Looks(annotated)):
        assert run() == plain
        assert run() == plain


def test_leaves_without_values_have_gradients() -> None:
    """No type of numbers is chosen by itself there (``torch.autocast``), nor can be asked for."""
    layer = nn.Linear(4, 2, device="meta")
    with amanda.apply(Looks(annotated=False)):
        layer(torch.ones(2, 4, device="meta")).sum().backward()
    assert layer.weight.grad is not None
