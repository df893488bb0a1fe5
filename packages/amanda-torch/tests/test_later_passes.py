"""Gradients of gradients: the gradient of an operator as a whole in each backward pass.

What is right is worked out by hand. An operator y = f(x) has the gradient g * f'(x) for what comes
in at y. A routine that triples it gives 3 * g * f'(x), which has the derivative of g * f'(x): in a
second pass x gets g * f''(x), by whatever the operator saved, and that is none of its gradient. So
a tool sees there what comes in at y anew, and nothing where nothing does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import Insert, Observe
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Function = Callable[[Tensor], Tensor]

X = torch.tensor([0.5, -2.0, 3.0], dtype=torch.float64)
W = torch.tensor([2.0, 5.0, -7.0], dtype=torch.float64)
BOTH = pytest.mark.parametrize("insertion", ["insert_on_grad_inputs", "insert_on_grad_outputs"])


class Triple(Insert):
    """Triples gradients, and notes which of them there were, at each run."""

    def __init__(self, insertion: str, ops: Any, **options: Any) -> None:
        self.ran: list[list[bool]] = []
        super().__init__(insertion, ops, self.triple, **options)

    def triple(self, *grads: Tensor | None) -> list[Tensor | None]:
        self.ran.append([grad is not None for grad in grads])
        return [None if grad is None else grad * 3 for grad in grads]


def second(f: Function, plus: float = 0, x: Tensor = X) -> Tensor:
    """What x gets of the sum of the gradient of f, and of f itself as often as is said."""
    x = x.clone().requires_grad_()
    y = f(x).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    loss = torch.add(first.sum(), y, alpha=plus) if plus else first.sum()
    (found,) = torch.autograd.grad(loss, x)
    return found


class Cube(torch.autograd.Function):
    """It saves its input, and what it computes of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x, x * x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        x, square = ctx.saved_tensors
        return grads[0] * (2 * x * x + square.detach())


def square(x: Tensor) -> Tensor:
    return x * x


def recomputed(x: Tensor) -> Tensor:
    result: Tensor = checkpoint(square, x, use_reentrant=False)
    return result


# Each with its first derivative and its second one. Autograd computes them from different things:
# inputs that were saved, outputs, and what is computed in between.
FUNCTIONS = {
    "input": (square, ["mul"], 2 * X, torch.full_like(X, 2)),
    "output": (torch.exp, ["exp"], X.exp(), X.exp()),
    "recomputed": (recomputed, ["mul"], 2 * X, torch.full_like(X, 2)),
    "custom": (Cube.apply, ["Cube"], 3 * X**2, 4 * X),
    "composite": (
        lambda x: torch.linalg.matrix_power(x.reshape(3, 1, 1), 3),
        ["linalg_matrix_power"],
        3 * X**2,
        6 * X,
    ),
}
functions = pytest.mark.parametrize(
    ("function", "ops", "first", "twice"), FUNCTIONS.values(), ids=FUNCTIONS
)


@functions
def test_what_comes_through_what_was_saved_is_not_the_operators_gradient(
    function: Function, ops: Sequence[str], first: Tensor, twice: Tensor
) -> None:
    tool = Triple("insert_on_grad_inputs", ops)
    with amanda.apply(tool):
        found = second(function)
    torch.testing.assert_close(found, twice)
    assert tool.ran == [[True] * len(tool.ran[0])]


@functions
def test_a_substitute_for_what_comes_in_is_what_is_differentiated(
    function: Function, ops: Sequence[str], first: Tensor, twice: Tensor
) -> None:
    tool = Triple("insert_on_grad_outputs", ops)
    with amanda.apply(tool):
        found = second(function)
    torch.testing.assert_close(found, 3 * twice)
    assert tool.ran == [[True]]


@functions
def test_both_come_in_one_pass(
    function: Function, ops: Sequence[str], first: Tensor, twice: Tensor
) -> None:
    """A gradient penalty: the loss has the output and its gradient."""
    tool = Triple("insert_on_grad_inputs", ops)
    with amanda.apply(tool):
        found = second(function, plus=10)
    torch.testing.assert_close(found, 3 * 10 * first + twice)
    tool = Triple("insert_on_grad_outputs", ops)
    with amanda.apply(tool):
        found = second(function, plus=10)
    torch.testing.assert_close(found, 3 * 10 * first + 3 * twice)


def test_a_routine_runs_only_where_a_gradient_flows() -> None:
    """The second product saves w, and its boundary has nothing for the first one."""
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    found: list[tuple[Tensor, ...]] = []

    def triple(grad: Tensor) -> Tensor:
        return grad * 3

    tool = Insert("insert_on_grad_outputs", ["mul"], triple)
    with amanda.apply(tool):
        (first,) = torch.autograd.grad(((x * x) * w).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.sum(), [x, w]))
    # The sum sends 1, of which the second product sends 3 * w to x * x: that sends 9 * w * 2 * x.
    torch.testing.assert_close(first, 18 * W * X)
    # 3 * w stands for 3 and is tripled once more, with the derivative of 3 * w for w.
    torch.testing.assert_close(found[0], (18 * W, 6 * X))


def test_a_backward_operator_without_any_gradient_is_not_seen() -> None:
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()

    def triple(grad: Tensor) -> Tensor:
        return grad * 3

    with amanda.apply(
        Insert("insert_on_grad_inputs", ["mul"], lambda *grads: None),
        Insert("insert_before_backward_op", ["MulBackward0"], triple),
    ):
        (first,) = torch.autograd.grad(((x * x) * w).sum(), x, create_graph=True)
        found = torch.autograd.grad(first.sum(), [x, w])
    torch.testing.assert_close(found, (18 * W, 6 * X))


def test_operators_in_a_row_each_see_what_comes_in_at_them() -> None:
    """Of x**4, by two operators: b = a**2 of a = x * x, the first gradient is 2 * a * 2 * x.

    By x, which the product saved, it has the derivative 2 * a * 2. By a, which the power saved, it
    has 2 * 2 * x: that comes in at the product again, which sends 3 * 2 * x for it.
    """
    with amanda.apply(tool := Triple("insert_on_grad_inputs", ["mul"])):
        found = second(lambda x: (x * x).square())
    torch.testing.assert_close(found, 4 * X**2 + 3 * 8 * X**2)
    assert tool.ran == [[True, True], [True, True]]


def test_an_operator_that_is_executed_twice() -> None:
    """x**4, by a loop over one operator, which is executed for x and for a = x * x.

    The outer square sends u = 3 * 2 * a to the inner one, and that 3 * 2 * x * u to x. By x of the
    inner square this has the derivative 2 * u. By u it has 2 * x, of which comes 2 * 2 * x to a,
    since what stands for 2 * a has its derivative, and for that the inner one sends 3 * 2 * x.
    """
    tool = Triple("insert_on_grad_inputs", ["mul"])

    def twice(x: Tensor) -> Tensor:
        for _ in range(2):
            x = x * x
        return x

    with amanda.apply(tool):
        found = second(twice)
    torch.testing.assert_close(found, 2 * 6 * X**2 + 3 * 2 * X * 4 * X)


def test_a_third_derivative() -> None:
    """What stands for the gradient has the derivatives of that, the second one too."""
    x = X.clone().requires_grad_()
    with amanda.apply(Triple("insert_on_grad_inputs", ["exp"])):
        (one,) = torch.autograd.grad(x.exp().sum(), x, create_graph=True)
        (two,) = torch.autograd.grad(one.sum(), x, create_graph=True)
        (three,) = torch.autograd.grad(two.sum(), x)
    torch.testing.assert_close(one, 3 * X.exp())
    torch.testing.assert_close(two, X.exp())
    torch.testing.assert_close(three, X.exp())


def penalty(x: Tensor) -> Tensor:
    """A loss of the square and of its gradient, for transforms."""
    first, value = torch.func.grad_and_value(lambda x: square(x).sum())(x)
    return first.sum() + value


TRANSFORMS = {
    "jacfwd of jacrev": lambda: torch.func.hessian(lambda x: square(x).sum())(X),
    "jacrev of jacrev": lambda: torch.func.jacrev(torch.func.jacrev(lambda x: square(x).sum()))(X),
    "vmap": lambda: torch.diag(torch.func.vmap(torch.func.grad(torch.func.grad(square)))(X)),
    "in a loop": lambda: torch.autograd.functional.hessian(lambda x: square(x).sum(), X),
    "vectorized": lambda: torch.autograd.functional.hessian(
        lambda x: square(x).sum(), X, vectorize=True
    ),
}


@BOTH
@pytest.mark.parametrize("hessian", TRANSFORMS.values(), ids=TRANSFORMS)
def test_hessians(hessian: Callable[[], Tensor], insertion: str) -> None:
    """That of the sum of x**2 is 2 on the diagonal, and 6 where what comes in is tripled."""
    with amanda.apply(Triple(insertion, ["mul"])):
        found = hessian()
    diagonal = 2 if insertion == "insert_on_grad_inputs" else 6
    torch.testing.assert_close(found, diagonal * torch.eye(3, dtype=torch.float64))


def test_both_come_in_one_pass_of_a_transform() -> None:
    with amanda.apply(Triple("insert_on_grad_inputs", ["mul"])):
        found = torch.func.grad(penalty)(X)
        batched = torch.func.vmap(torch.func.grad(penalty))(X.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(found, 3 * 2 * X + 2)
    torch.testing.assert_close(batched, 3 * 2 * X + 2)


def inner_step(x: Tensor, w: Tensor) -> Tensor:
    """What is left of a loss after a step down its own gradient, as in meta-learning."""
    loss: Function = lambda v: (torch.tanh(w * v) * v).square().sum()  # noqa: E731
    return loss(x - 0.1 * torch.func.grad(loss)(x))


def of_rows(x: Tensor, w: Tensor) -> Tensor:
    """The same with a loss that is itself computed row by row."""
    rows: Function = lambda v: torch.func.vmap(lambda r: torch.tanh(r * v).sum())(w).sum()  # noqa: E731
    return (torch.func.grad(rows)(x) * x).square().sum()


@BOTH
@pytest.mark.parametrize(("task", "w"), [(inner_step, W), (of_rows, torch.outer(W, W))])
def test_a_pass_through_what_was_differentiated_within_vmap(
    task: Callable[[Tensor, Tensor], Tensor], w: Tensor, insertion: str
) -> None:
    """It is the same as that of the tasks one by one."""
    tasks = torch.stack([X, X / 2, X / 3])

    def outer(run: Callable[[Tensor], Tensor]) -> tuple[Tensor, list[list[bool]]]:
        tool, weight = Triple(insertion, ["mul", "tanh"]), w.clone().requires_grad_()
        with amanda.apply(tool):
            run(weight).sum().backward()
        assert weight.grad is not None
        return weight.grad, tool.ran

    one_by_one, _ = outer(lambda weight: torch.stack([task(x, weight) for x in tasks]))
    batched, ran = outer(lambda weight: torch.func.vmap(lambda x: task(x, weight))(tasks))
    torch.testing.assert_close(batched, one_by_one)
    assert ran


def test_substitutes_that_are_not_finite_are_exact() -> None:
    """In a later pass a gradient that is nan is replaced as it is in the first."""
    x = X.clone().requires_grad_()
    with amanda.apply(Insert("insert_on_grad_inputs", ["mul"], torch.nan_to_num, inputs=[0])):
        y = x * 2
        torch.autograd.grad(y.sum(), x, create_graph=True)
        (found,) = torch.autograd.grad(y, x, torch.tensor([float("nan"), 1.0, 2.0]))
    assert found.tolist() == [0, 2, 4]


def test_a_tool_that_looks_changes_no_gradient_penalty() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()

    def run() -> list[Tensor]:
        x = X.expand(2, 3).clone().requires_grad_()
        y = model(x).sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        return list(torch.autograd.grad(first.square().sum() + y, [x, *model.parameters()][:-1]))

    plain = run()
    with amanda.apply(Observe()):
        found = run()
    torch.testing.assert_close(found, plain, rtol=1e-14, atol=1e-15)
