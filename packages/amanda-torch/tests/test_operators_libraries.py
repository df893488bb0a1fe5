"""Operators that the program brings itself: autograd Functions, and operators of its libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import (
    Describe,
    Observe,
    Record,
    after,
    before,
    recorded,
    replace,
    under,
)
from leaves import leaf
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

V = torch.randn(4)


# Custom autograd Functions


class Square(torch.autograd.Function):
    """k x^2, in the older style."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.k = k
        return x * x * k

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * grads[0] * ctx.k, None


class SetUp(torch.autograd.Function):
    """The same with ``setup_context``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, k: float) -> Tensor:
        return x * x * k

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * grads[0] * ctx.k, None


class Once(torch.autograd.Function):
    """exp, which saves its output and cannot be differentiated twice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        (y,) = ctx.saved_tensors
        return grads[0] * y


class Sums(torch.autograd.Function):
    """The sum of any number of tensors, and twice the first one."""

    @staticmethod
    def forward(ctx: Any, *xs: Tensor) -> tuple[Tensor, Tensor]:
        ctx.count = len(xs)
        return sum(xs[1:], start=xs[0]), xs[0] * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        total, twice = grads
        return (total + 2 * twice, *(total for _ in range(ctx.count - 1)))


class Triple(torch.autograd.Function):
    """3 x, in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 3


class Sigmoid(torch.autograd.Function):
    """sigmoid in place, which saves its output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        y = x.sigmoid_()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (y,) = ctx.saved_tensors
        return grads[0] * y * (1 - y)


def value_and_grad(run: Callable[[Tensor], Tensor], *tools: amanda.Tool) -> tuple[Tensor, Tensor]:
    """The result, and the gradient of half the sum of its squares."""
    x = V.clone().requires_grad_()
    y = under(tools, lambda: run(x))
    (y.square().sum() / 2).backward()
    return y.detach(), x.grad


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Square": lambda x: Square.apply(x, 2.0),
    "SetUp": lambda x: SetUp.apply(x, 2.0),
    "Once": Once.apply,
    "Sums": lambda x: Sums.apply(x, x.sin(), x)[0] + Sums.apply(x)[1],
    "Triple": lambda x: Triple.apply(x * 1),
    "Sigmoid": lambda x: Sigmoid.apply(x * 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_an_operator(name: str) -> None:
    run = FUNCTIONS[name]
    expected = [name] * (1 + (name == "Sums"))
    assert recorded(lambda: run(V), name) == expected
    assert [type for type in recorded(lambda: run(V)) if type in FUNCTIONS] == expected


@pytest.mark.parametrize("name", FUNCTIONS)
def test_observing_a_function_changes_nothing(name: str) -> None:
    for a, b in zip(
        value_and_grad(FUNCTIONS[name]), value_and_grad(FUNCTIONS[name], Observe()), strict=True
    ):
        assert torch.equal(a, b)


def test_a_function_that_the_program_took_hold_of_before() -> None:
    square = Square.apply
    assert recorded(lambda: square(V, 2.0)) == ["Square"]
    mapped = recorded(lambda: torch.vmap(SetUp.apply, in_dims=(0, None))(V, 2.0))
    assert mapped == ["SetUp"]


def test_arguments_of_functions() -> None:
    tool = Describe(["Square", "SetUp", "Sums"])
    under(tool, lambda: (Square.apply(V, 2.0), SetUp.apply(V, 3), Sums.apply(V, V)))
    assert tool.names == {"Square": ["x"], "SetUp": ["x"], "Sums": ["xs[0]", "xs[1]"]}
    assert tool.attrs == {"Square": {"k": 2.0}, "SetUp": {"k": 3}, "Sums": {}}


def test_what_is_inside_a_function_is_seen_when_only_that_is_wanted() -> None:
    run = lambda: Square.apply(V, 2.0)  # noqa: E731
    assert recorded(run, "mul") == ["mul", "mul"]
    assert recorded(run, "mul", "Square") == ["Square"]
    whole, parts = Record("Square"), Record("mul")
    under([whole, parts], run)
    assert (whole.types, parts.types) == (["Square"], ["mul", "mul"])


@pytest.mark.parametrize("name", ["Square", "SetUp"])
def test_substitutes_at_a_function(name: str) -> None:
    run = FUNCTIONS[name]
    y, grad = value_and_grad(run, before(name, lambda x: x + 1))
    torch.testing.assert_close(y, 2 * (V + 1).square())
    torch.testing.assert_close(grad, y * 4 * (V + 1))
    y, grad = value_and_grad(run, after(name, lambda y: y + 1))
    torch.testing.assert_close(y, 2 * V.square() + 1)
    torch.testing.assert_close(grad, y * 4 * V)
    y, grad = value_and_grad(run, replace(name, lambda x: x + 1))
    torch.testing.assert_close(y, V + 1)
    torch.testing.assert_close(grad, y * 4 * V)
    y, grad = value_and_grad(run, replace(name, lambda x: x.sin(), differentiable=True))
    torch.testing.assert_close(y, V.sin())
    torch.testing.assert_close(grad, y * V.cos())


def test_a_substitute_behind_a_function_that_saves_its_output() -> None:
    y, grad = value_and_grad(Once.apply, after("Once", lambda y: y * 2))
    torch.testing.assert_close(y, 2 * V.exp())
    torch.testing.assert_close(grad, y * V.exp())


def test_one_of_any_number_of_tensors() -> None:
    x = V.clone().requires_grad_()
    y, _ = under(before("Sums", lambda b: b + 1, inputs=[1]), lambda: Sums.apply(x, x * 2, x))
    y.sum().backward()
    torch.testing.assert_close(y.detach(), 4 * V + 1)
    torch.testing.assert_close(x.grad, torch.full((4,), 4.0))


@pytest.mark.parametrize(
    ("function", "value", "derivative"),
    [
        (Triple, lambda x: 3 * x, lambda x: torch.full_like(x, 3)),
        (Sigmoid, torch.sigmoid, lambda x: x.sigmoid() * (1 - x.sigmoid())),
    ],
)
def test_a_function_that_writes_to_its_input(
    function: Any, value: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> None:
    name = function.__name__

    def run(x: Tensor) -> Tensor:
        h = x * 1
        alias = h[:]
        assert function.apply(h) is h
        assert torch.equal(h, alias)
        return h

    y, grad = value_and_grad(run, after(name, lambda y: y + 1))
    torch.testing.assert_close(y, value(V) + 1)
    torch.testing.assert_close(grad, y * derivative(V))
    y, grad = value_and_grad(run, before(name, lambda x: x + 1))
    torch.testing.assert_close(y, value(V + 1))
    torch.testing.assert_close(grad, y * derivative(V + 1))
    y, grad = value_and_grad(run, replace(name, lambda x: x + 1))
    torch.testing.assert_close(y, V + 1)
    torch.testing.assert_close(grad, y * derivative(V))


def test_double_backward_through_a_function() -> None:
    def second(*tools: amanda.Tool) -> Tensor:
        x = V.clone().requires_grad_()
        y = under(tools, lambda: Square.apply(x, 2.0) * x.sin())
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x)
        return h

    torch.testing.assert_close(second(Observe()), second())
    shifted = second(after("Square", lambda y: y + 1))
    # (2 x^2 + 1) sin x, whose first factor has the derivative 4 x
    expected = 4 * V.sin() + 4 * V * V.cos() * 2 - (2 * V.square() + 1) * V.sin()
    torch.testing.assert_close(shifted, expected)


def test_a_function_that_cannot_be_differentiated_twice_says_so() -> None:
    x = leaf(4)
    y = under(Observe(), lambda: Once.apply(x))
    (g,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


# Operators of libraries


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """Operators of a library: one with a gradient, and one that writes to its argument."""

    @torch.library.custom_op("amanda_tests::scale", mutates_args=())
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    def set_up(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.k = inputs[1]

    scale.register_autograd(lambda ctx, g: (g * ctx.k, None), setup_context=set_up)

    @torch.library.custom_op("amanda_tests::shift_", mutates_args={"x"})
    def shift_(x: Tensor, by: Tensor) -> None:
        x.add_(by)

    yield torch.ops.amanda_tests
    del scale, shift_


def test_an_operator_of_a_library(library: Any) -> None:
    tool, shown = Record("amanda_tests::scale"), Describe("amanda_tests::scale")
    under([tool, shown], lambda: (library.scale(V), library.scale(V, k=5.0)))
    assert tool.types == ["amanda_tests::scale"] * 2
    assert shown.names == {"amanda_tests::scale": ["x"]}
    assert shown.attrs == {"amanda_tests::scale": {"k": 5.0}}
    assert recorded(lambda: library.scale(V)) == ["amanda_tests::scale"]
    assert recorded(lambda: library.scale(V), "mul") == ["mul"]


@pytest.mark.parametrize("recorded", [True, False])
def test_what_is_inside_an_operator_of_a_library(library: Any, recorded: bool) -> None:
    x = leaf(4) if recorded else V
    run = lambda: library.scale(x)  # noqa: E731 : one place in the program
    alone, whole, parts = Record("mul"), Record("amanda_tests::scale"), Record("mul")
    under(alone, run)
    under([whole, parts], run)
    assert alone.types == parts.types == ["mul"]
    assert alone.ran == parts.ran
    assert whole.types == ["amanda_tests::scale"]


def test_its_bare_name_leaves_the_library_out(library: Any) -> None:
    names = []
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: names.append(ctx.op.__name__), ops=["amanda_tests::scale"])
    under(tool, lambda: library.scale(V))
    assert names == ["scale"]


def test_substitutes_at_an_operator_of_a_library(library: Any) -> None:
    op, run = "amanda_tests::scale", lambda x: library.scale(x, 3.0)
    for a, b in zip(value_and_grad(run), value_and_grad(run, Observe()), strict=True):
        assert torch.equal(a, b)
    y, grad = value_and_grad(run, before(op, lambda x: x + 1))
    torch.testing.assert_close((y, grad), (3 * (V + 1), 3 * y))
    y, grad = value_and_grad(run, after(op, lambda y: y + 1))
    torch.testing.assert_close((y, grad), (3 * V + 1, 3 * y))
    y, grad = value_and_grad(run, replace(op, lambda x: x + 1))
    torch.testing.assert_close((y, grad), (V + 1, 3 * y))
    y, grad = value_and_grad(run, replace(op, lambda x: x.sin(), differentiable=True))
    torch.testing.assert_close((y, grad), (V.sin(), V.sin() * V.cos()))


def test_an_operator_of_a_library_that_writes(library: Any) -> None:
    op = "amanda_tests::shift_"
    for tool, expected in [
        (Observe(), 3 * V),
        (before(op, lambda by: by * 2, inputs=[1]), 5 * V),
        (before(op, lambda x: x * 0, inputs=[0]), 2 * V),
        (after(op, lambda x: x * 2), 6 * V),
        (replace(op, lambda x, by: x - by), -V),
    ]:
        x = V.clone()
        assert under(tool, lambda x=x: library.shift_(x, 2 * V)) is None
        torch.testing.assert_close(x, expected)


def test_an_operator_that_is_defined_while_a_scope_is_open() -> None:
    named, everything = Record(["amanda_late::one", "amanda_late::two"]), Record()
    with amanda.apply(named, everything):

        @torch.library.custom_op("amanda_late::one", mutates_args=())
        def one(x: Tensor) -> Tensor:
            return x + 1

        library = torch.library.Library("amanda_late", "FRAGMENT")
        library.define("two(Tensor x) -> Tensor")
        library.impl("two", lambda x: x + 2, "CompositeExplicitAutograd")
        results = one(V), torch.ops.amanda_late.two(V)
    assert torch.equal(results[0], V + 1)
    assert torch.equal(results[1], V + 2)
    assert named.types == everything.types[:2] == ["amanda_late::one", "amanda_late::two"]


def test_an_overload_that_is_defined_between_two_scopes() -> None:
    with torch.library._scoped_library("amanda_grows", "FRAGMENT") as library:
        library.define("op(Tensor x) -> Tensor")
        library.impl("op", Tensor.neg, "CompositeImplicitAutograd")
        op = torch.ops.amanda_grows.op
        assert recorded(lambda: op(V), "amanda_grows::op") == ["amanda_grows::op"]
        library.define("op.twice(Tensor x, Tensor y) -> Tensor")
        library.impl("op.twice", torch.add, "CompositeImplicitAutograd")
        assert recorded(lambda: op.twice(V, V), "amanda_grows::op") == ["amanda_grows::op"]


def test_an_operator_that_goes_while_a_scope_is_open() -> None:
    with amanda.apply(Record()):
        library = torch.library.Library("amanda_gone", "DEF")
        library.define("op(Tensor x) -> Tensor")
        library.impl("op", lambda x: x + 1, "CPU")
        assert torch.equal(torch.ops.amanda_gone.op(V), V + 1)
        library._destroy()
        torch.relu(V)
    assert recorded(lambda: V.relu()) == ["relu"]


def test_a_library_that_registers_a_kernel_while_a_scope_is_open() -> None:
    library = torch.library.Library("amanda_kernels", "DEF")
    library.define("op(Tensor x) -> Tensor")
    tool = Record("amanda_kernels::op")
    with amanda.apply(tool):
        library.impl("op", lambda x: x * 3, "CPU")
        assert torch.equal(torch.ops.amanda_kernels.op(V), V * 3)
    assert tool.types == ["amanda_kernels::op"]
    library._destroy()
