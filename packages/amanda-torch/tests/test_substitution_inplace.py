"""S2 and S3 for operators that write to tensors of the program: in place, and with ``out=``."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import Observe, after, before, recorded, replace, under
from leaves import leaf
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

V = torch.randn(3, 4)


def double(t: Tensor) -> Tensor:
    return t * 2


# In place: a program that holds its tensor twice

PROGRAMS: dict[str, tuple[str, Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    # type, what is run in place, its derivative as a function of the input
    "saves its result": ("sigmoid_", torch.sigmoid_, lambda x: x.sigmoid() * (1 - x.sigmoid())),
    "saves its input": ("sin_", torch.sin_, torch.cos),
    "saves neither": ("mul_", lambda t: t.mul_(3), lambda x: torch.full_like(x, 3)),
    "relu": ("relu_", torch.relu_, lambda x: (x > 0).to(x)),
    "exp": ("exp_", torch.exp_, torch.exp),
    "composite": ("leaky_relu_", functional.leaky_relu_, lambda x: torch.where(x > 0, 1.0, 0.01)),
}
each = pytest.mark.parametrize(("op", "run", "derivative"), PROGRAMS.values(), ids=PROGRAMS)
Results = tuple[Tensor, Tensor]


def result_and_gradient(run: Callable[[Tensor], Tensor], tool: amanda.Tool) -> Results:
    """What a tensor holds after it was written to, and the gradient of its squares."""
    x = V.clone().requires_grad_()
    h = x * 1
    alias = h[:]
    returned = under(tool, lambda: run(h))
    assert returned is h
    assert torch.equal(alias, h)
    (h * alias).sum().backward()
    return h.detach(), x.grad


def plainly(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return run(x.detach().clone())


@each
def test_observing_changes_nothing(
    op: str, run: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> None:
    plain = result_and_gradient(run, Observe("view"))
    watched = result_and_gradient(run, Observe())
    for a, b in zip(plain, watched, strict=True):
        assert torch.equal(a, b)


@each
def test_a_replaced_result_is_seen_by_every_alias(
    op: str, run: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> None:
    h, grad = result_and_gradient(run, after(op, lambda t: t * 2 + 1))
    torch.testing.assert_close(h, plainly(run, V) * 2 + 1)
    torch.testing.assert_close(grad, 2 * h * derivative(V))


@each
def test_a_substituted_input_still_updates_the_programs_tensor(
    op: str, run: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> None:
    h, grad = result_and_gradient(run, before(op, lambda t: t + 1))
    torch.testing.assert_close(h, plainly(run, V + 1))
    torch.testing.assert_close(grad, 2 * h * derivative(V + 1))


@each
def test_both(
    op: str, run: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> None:
    tools = [before(op, lambda t: t + 1), after(op, lambda t: t * 2)]
    x = V.clone().requires_grad_()
    h = x * 1
    under(tools, lambda: run(h))
    h.square().sum().backward()
    torch.testing.assert_close(h.detach(), 2 * plainly(run, V + 1))
    torch.testing.assert_close(x.grad, 2 * h.detach() * derivative(V + 1))


@each
def test_a_replacement_writes_to_the_programs_tensor(
    op: str, run: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> None:
    h, grad = result_and_gradient(run, replace(op, lambda t: t * 5))
    torch.testing.assert_close(h, V * 5)
    torch.testing.assert_close(grad, 2 * h * derivative(V))


@each
def test_a_differentiable_replacement_has_its_own_gradient(
    op: str, run: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> None:
    h, grad = result_and_gradient(run, replace(op, lambda t: t.square(), differentiable=True))
    torch.testing.assert_close(h, V.square())
    torch.testing.assert_close(grad, 2 * h * 2 * V)


@each
def test_a_differentiable_routine_behind_it(
    op: str, run: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> None:
    h, grad = result_and_gradient(run, after(op, lambda t: t * t, differentiable=True))
    result = plainly(run, V)
    torch.testing.assert_close(h, result.square())
    torch.testing.assert_close(grad, 2 * h * 2 * result * derivative(V))


@each
def test_without_gradients(
    op: str, run: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> None:
    for guard in (torch.no_grad, torch.inference_mode):
        for tool, expected in [
            (after(op, double), 2 * plainly(run, V)),
            (before(op, double), plainly(run, 2 * V)),
            (replace(op, double), 2 * V),
        ]:
            with guard():
                h = V.clone()
                alias = h.view(-1)
                assert under(tool, lambda h=h: run(h)) is h
            torch.testing.assert_close(h, expected)
            torch.testing.assert_close(alias, expected.view(-1))


# A view of part of a tensor


@pytest.mark.parametrize(
    ("tool", "expected", "factor"),
    [
        (Observe(), lambda row: row * 2, 2),
        (after("mul_", lambda t: t + 1), lambda row: row * 2 + 1, 2),
        (before("mul_", lambda t: t + 1), lambda row: (row + 1) * 2, 2),
        (replace("mul_", lambda t: t - 1), lambda row: row - 1, 2),
        (
            replace("mul_", lambda t: t * 7, differentiable=True),
            lambda row: row * 7,
            7,
        ),
    ],
    ids=["observing", "after", "before", "replace", "differentiable"],
)
def test_a_slice(tool: amanda.Tool, expected: Callable[[Tensor], Tensor], factor: float) -> None:
    x = V.clone().requires_grad_()
    h = x * 1
    under(tool, lambda: h[0].mul_(2))
    h.square().sum().backward()
    wanted, grad = V.clone(), 2 * V
    wanted[0] = expected(V[0])
    grad[0] = 2 * wanted[0] * factor
    torch.testing.assert_close(h.detach(), wanted)
    torch.testing.assert_close(x.grad, grad)


def test_an_operator_that_writes_to_one_operand_and_reads_it_as_another() -> None:
    x = V.clone()
    under(before("add_", double, inputs=[0]), lambda: x.add_(x))
    torch.testing.assert_close(x, 3 * V)
    y = V.clone()
    under(before("add_", double, inputs=[1]), lambda: y.add_(y))
    torch.testing.assert_close(y, 3 * V)


def test_a_tools_own_tensor_is_not_written_to() -> None:
    mask = torch.zeros(3, 4)
    x = V.clone()
    under(before("add_", lambda t: mask, inputs=[0]), lambda: x.add_(1))
    assert torch.equal(x, torch.ones(3, 4))
    assert torch.equal(mask, torch.zeros(3, 4))


# What changes a shape in place


@pytest.mark.parametrize(
    ("op", "run"),
    [
        ("unsqueeze_", lambda t: t.unsqueeze_(0)),
        ("transpose_", lambda t: t.transpose_(0, 1)),
        ("t_", lambda t: t.t_()),
        ("squeeze_", lambda t: t.squeeze_()),
        ("as_strided_", lambda t: t.as_strided_((2, 2), (1, 4))),
    ],
)
def test_the_shape_of_the_programs_tensor_changes(op: str, run: Callable[[Tensor], Tensor]) -> None:
    expected = V.clone()
    run(expected)
    for tool in (Observe(), after(op, double), before(op, double)):
        x = V.clone().requires_grad_()
        h = x * 1
        assert under(tool, lambda h=h: run(h)) is h
        assert h.shape == expected.shape
        factor = 1 if isinstance(tool, Observe) else 2
        torch.testing.assert_close(h.detach(), factor * expected)
        h.square().sum().backward()
        plain = V.clone().requires_grad_()
        run(plain * 1).square().sum().backward()
        torch.testing.assert_close(x.grad, factor * plain.grad)


# Several tensors at once


def test_each_of_a_list() -> None:
    tensors = [V.clone(), V.clone(), V.clone()]
    under(
        after("_foreach_add_", lambda a, b, c: (None, b * 2, None)),
        lambda: torch._foreach_add_(tensors, 1.0),
    )
    for tensor, factor in zip(tensors, [1, 2, 1], strict=True):
        torch.testing.assert_close(tensor, factor * (V + 1))


def test_a_substitute_within_a_list() -> None:
    tensors = [V.clone(), V.clone()]
    under(before("_foreach_mul_", double, inputs=[1]), lambda: torch._foreach_mul_(tensors, 3.0))
    torch.testing.assert_close(tensors, [3 * V, 6 * V])


def test_a_replacement_of_what_returns_nothing() -> None:
    tensors = [V.clone(), V.clone()]
    result = under(
        replace("_foreach_neg_", lambda a, b: (a + 1, b + 2)),
        lambda: torch.ops.aten._foreach_neg_(tensors),
    )
    assert result is None
    torch.testing.assert_close(tensors, [V + 1, V + 2])


# out=


def test_a_destination_is_the_result() -> None:
    for tool, expected in [
        (Observe(), 2 * V),
        (before("add", double, inputs=[1]), 3 * V),
        (after("add", double), 4 * V),
        (replace("add", lambda a, b: a - 3 * b), -2 * V),
    ]:
        for out in (torch.empty(3, 4), torch.empty(0)):
            with torch.no_grad():
                assert under(tool, lambda out=out: torch.add(V, V, out=out)) is out
            torch.testing.assert_close(out, expected)


def test_aliases_of_a_destination_see_it() -> None:
    memory = torch.zeros(2, 3, 4)
    under(after("mul", double), lambda: torch.mul(V, 3, out=memory[1]))
    torch.testing.assert_close(memory, torch.stack([torch.zeros(3, 4), 6 * V]))


def test_one_of_two_destinations() -> None:
    values, indices = torch.empty(0), torch.empty(0, dtype=torch.long)
    tool = after("max", double, outputs=[0])
    result = under(tool, lambda: torch.max(V, 1, out=(values, indices)))
    assert result[0] is values
    assert result[1] is indices
    torch.testing.assert_close(values, 2 * V.max(1).values)
    assert torch.equal(indices, V.max(1).indices)


# Errors


def test_a_leaf_is_refused_as_ever_and_keeps_its_value() -> None:
    weight = nn.Parameter(V.clone())
    for tool in (
        Observe(),
        before("add_", double),
        after("add_", double),
        replace("add_", double),
        after("add_", double, differentiable=True),
    ):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            under(tool, lambda: weight.add_(1))
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            under(tool, lambda: weight[0].add_(1))
        assert torch.equal(weight.detach(), V)


def test_a_program_that_writes_to_what_was_saved_is_told_as_ever() -> None:
    for tool in (Observe(), after("sigmoid_", lambda t: None)):
        h = leaf(4) * 1
        under(tool, lambda h=h: h.sigmoid_())
        h.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            h.sum().backward()


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("insertion", [after, replace])
@pytest.mark.parametrize(
    ("routine", "match"),
    [(lambda t: t[0], "shape"), (lambda t: t.double(), "float64"), (lambda t: 1.0, "float")],
    ids=["shape", "dtype", "no tensor"],
)
def test_what_cannot_be_written_is_an_error(
    recorded: bool, insertion: Any, routine: Callable[[Tensor], Any], match: str
) -> None:
    h = (leaf(3, 4) if recorded else V) * 1
    before_it = h.detach().clone()
    with pytest.raises(amanda.RoutineError, match=match):
        under(insertion("neg_", routine), lambda: h.neg_())
    if insertion is replace and not recorded:
        assert torch.equal(h, before_it)


def test_a_replaced_result_of_another_dtype_is_never_cast() -> None:
    out = torch.empty(3, 4)
    with pytest.raises(amanda.RoutineError, match="float64"):
        under(replace("add", lambda a, b: a.double()), lambda: torch.add(V, V, out=out))


# Nothing is kept alive


def test_a_tensor_is_freed_without_a_backward() -> None:
    tools = [after("sigmoid_", lambda t: None), after("sigmoid_", double), Observe("sigmoid_")]
    gc.disable()
    try:
        for tool in tools:
            h = leaf(4) * 1
            under(tool, lambda h=h: h.sigmoid_())
            gone = weakref.ref(h)
            del h
            assert gone() is None
    finally:
        gc.enable()


# Next to other users of what autograd saves and calls


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("insertion", [before, after, replace])
def test_within_an_activation_checkpoint(insertion: Any, use_reentrant: bool) -> None:
    def block(x: Tensor) -> Tensor:
        return x.sin().sigmoid_().square()

    def results(run: Callable[[Tensor], Tensor]) -> Results:
        x = V.clone().requires_grad_()
        with amanda.apply(insertion("sigmoid_", double)):
            y = run(x)
            y.sum().backward()
        return y.detach(), x.grad

    plain = results(block)
    again = results(lambda x: checkpoint(block, x, use_reentrant=use_reentrant))
    torch.testing.assert_close(again, plain)


def test_where_the_program_keeps_what_is_saved_elsewhere() -> None:
    x = V.clone().requires_grad_()
    with torch.autograd.graph.save_on_cpu(), amanda.apply(after("sigmoid_", double)):
        y = (x * 1).sigmoid_()
        y.square().sum().backward()
    s = V.sigmoid()
    torch.testing.assert_close(x.grad, 2 * 2 * s * s * (1 - s))


def test_hooks_on_a_tensor_see_the_gradient_of_what_it_holds() -> None:
    for tool, factor in [(Observe(), 1), (after("relu_", double), 2)]:
        x = V.clone().requires_grad_()
        h = x * 1
        early: list[Tensor] = []
        late: list[Tensor] = []
        h.register_hook(early.append)
        h.retain_grad()
        under(tool, lambda h=h: h.relu_())
        h.register_hook(late.append)
        h.square().sum().backward()
        torch.testing.assert_close(late, [2 * factor * V.relu()])
        torch.testing.assert_close(early, [2 * factor * V.relu() * (V > 0)])
        torch.testing.assert_close(h.grad, late[0])


def test_the_step_of_an_optimizer() -> None:
    layer = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5, foreach=True)
    layer(torch.ones(1, 4)).sum().backward()
    before_it = layer.weight.detach().clone()
    under(before("_foreach_add_", lambda *ts: [t * 2 for t in ts], inputs=[2, 3]), optimizer.step)
    torch.testing.assert_close(layer.weight.detach(), before_it - 0.5 * 2 * torch.ones(2, 4))


# Models that do it


class Dense(nn.Module):
    """Convolutions with in-place activations between them, and sums in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.act = nn.ReLU(inplace=True)
        self.second = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.act(self.norm(self.first(x)))
        h = self.second(h) + h
        h += 1
        return functional.silu(h, inplace=True).mean((2, 3))


def test_a_model_under_observation_has_the_same_gradients() -> None:
    model, x = Dense(), torch.randn(2, 3, 8, 8)
    assert recorded(lambda: model(x), "relu_", "add_", "silu_")[1:] == ["relu_", "add_", "silu_"]

    def gradients(tool: amanda.Tool) -> list[Tensor]:
        model.zero_grad()
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}

        def step() -> None:
            model(x).square().sum().backward()

        under(tool, step)
        found = [p.grad.clone() for p in model.parameters()]
        found += [tensor.clone() for tensor in model.buffers()]
        model.load_state_dict(state)
        return found

    plain, observed = gradients(Observe("view")), gradients(Observe())
    assert all(map(torch.equal, plain, observed))


# Replacements of what writes to state, or changes a shape


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("differentiable", [False, True])
def test_the_original_updates_the_state_of_the_program_once(
    grad: bool, differentiable: bool
) -> None:
    plain, replaced = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    tool = replace(
        "batch_norm",
        lambda original, *tensors: original(*tensors) * 2,
        original=True,
        differentiable=differentiable,
    )
    with torch.set_grad_enabled(grad):
        expected = plain(V) * 2
        with amanda.apply(tool):
            found = replaced(V)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(replaced.running_mean, plain.running_mean)
    torch.testing.assert_close(replaced.running_var, plain.running_var)


@pytest.mark.parametrize("original", [False, True])
def test_a_result_beside_state_that_is_written_is_replaced(original: bool) -> None:
    def routine(*given: Any) -> Tensor:
        return given[0](*given[1:]) + 1 if original else given[0] * 2 + 1

    with torch.library._scoped_library("replaced", "FRAGMENT") as library:
        library.define("counted(Tensor x, Tensor(a!) seen) -> Tensor")
        library.impl("counted", lambda x, seen: (seen.add_(1), x * 2)[1], "CPU")
        seen = torch.zeros(1)
        with amanda.apply(replace("replaced::counted", routine, original=original)):
            found = torch.ops.replaced.counted(V, seen)
    torch.testing.assert_close(found, V * 2 + 1)
    assert seen == int(original)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("differentiable", [False, True])
def test_what_changes_a_shape_in_place_is_replaced(grad: bool, differentiable: bool) -> None:
    x = V.clone().requires_grad_(grad)
    y = x * 1
    tool = replace(
        "t_", lambda original, t: original(t) * 2, original=True, differentiable=differentiable
    )
    with amanda.apply(tool):
        y.t_()
    torch.testing.assert_close(y.detach(), 2 * V.t())
