"""When a backward is seen: which scope it belongs to, how often it runs, and who runs it."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING

import amanda
import pytest
import torch
from amanda.testing.probes import Insert, Record, before
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from watching import BackwardWatch, GradientWatch, everything

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]])


def leaf(tensor: Tensor = X) -> Tensor:
    return tensor.clone().requires_grad_()


class Tripled(amanda.Tool):
    """Makes the gradient of every exponential three times as large, in one view or the other."""

    def __init__(self, view: str) -> None:
        super().__init__()
        self.ran = 0
        if view == "native":
            self.add_inst_for_op(
                lambda ctx: ctx.insert_before_backward_op(self.triple), backward=True, ops=["exp"]
            )
        else:
            self.add_inst_for_gradient(
                lambda ctx: ctx.insert_on_grad_outputs(self.triple), ops=["exp"]
            )

    def triple(self, grad: Tensor) -> Tensor:
        self.ran += 1
        return grad * 3


views = pytest.mark.parametrize("view", ["native", "whole"])


# Scopes


@views
def test_a_backward_of_what_ran_before_the_scope_is_said_not_to_be_seen(view: str) -> None:
    x, tool = leaf(), Tripled(view)
    y = x.exp().sum()
    with amanda.apply(tool), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            y.backward(retain_graph=True)
        leaf().exp().sum().backward()
    (warning,) = (each for each in caught if issubclass(each.category, amanda.AmandaWarning))
    assert "the backward pass of SumBackward0" in str(warning.message)
    assert warning.filename == __file__
    assert tool.ran == 1


@views
def test_a_backward_after_the_scope_is_not_seen(view: str) -> None:
    x, tool = leaf(), Tripled(view)
    with amanda.apply(tool):
        y = x.exp().sum()
    y.backward()
    assert tool.ran == 0
    assert torch.equal(x.grad, X.exp())


@views
def test_a_backward_within_disabled_is_not_seen(view: str) -> None:
    x, tool = leaf(), Tripled(view)
    with amanda.apply(tool):
        y = x.exp().sum()
        with amanda.disabled():
            y.backward()
    assert tool.ran == 0
    assert torch.equal(x.grad, X.exp())


@views
def test_what_ran_forward_within_disabled_is_not_seen(view: str) -> None:
    x, tool = leaf(), Tripled(view)
    with amanda.apply(tool):
        with amanda.disabled():
            y = x.exp().sum()
        y.backward()
    assert tool.ran == 0


@views
def test_a_scope_opened_before_the_backward_alone_sees_nothing(view: str) -> None:
    x, tool = leaf(), Tripled(view)
    y = x.exp().sum()
    with amanda.apply(tool):
        y.backward()
    assert tool.ran == 0


@views
def test_a_backward_within_an_inner_scope_is_seen_by_the_outer_tools(view: str) -> None:
    x, outer, inner = leaf(), Tripled(view), Tripled(view)
    with amanda.apply(outer):
        y = x.exp().sum()
        with amanda.apply(inner):
            y.backward()
    assert (outer.ran, inner.ran) == (1, 0)
    assert torch.equal(x.grad, 3 * X.exp())


@views
def test_a_backward_after_the_inner_scope_is_seen_by_the_outer_tools(view: str) -> None:
    x, outer, inner = leaf(), Tripled(view), Tripled(view)
    with amanda.apply(outer):
        with amanda.apply(inner):
            y = x.exp().sum()
        y.backward()
    assert (outer.ran, inner.ran) == (1, 0)
    assert torch.equal(x.grad, 3 * X.exp())


@views
def test_both_scopes_see_what_runs_within_both(view: str) -> None:
    x = leaf()
    with amanda.apply(Tripled(view)), amanda.apply(Tripled(view)):
        x.exp().sum().backward()
    assert torch.equal(x.grad, 9 * X.exp())


@views
def test_a_graph_serves_a_later_scope_no_more(view: str) -> None:
    x, tool = leaf(), Tripled(view)
    with amanda.apply(tool):
        y = x.exp().sum()
    with amanda.apply(tool):
        y.backward()
    assert tool.ran == 0


@views
def test_invalidating_between_forward_and_backward_keeps_the_backward(view: str) -> None:
    x, tool = leaf(), Tripled(view)
    with amanda.apply(tool):
        x.exp().sum().backward()
        y = x.exp().sum()
        tool.invalidate()
        y.backward()
        x.exp().sum().backward()
    assert tool.ran == 3
    assert torch.allclose(x.grad, 9 * X.exp())


@views
def test_without_the_cache_every_backward_is_analyzed(view: str) -> None:
    tool = BackwardWatch(["exp"]) if view == "native" else GradientWatch(["exp"])
    x = leaf()
    with amanda.apply(tool), amanda.cache_disabled():
        for _ in range(3):
            x.exp().sum().backward()
    assert len(tool.analyzed) == 3


# How often


@views
def test_a_retained_graph_is_seen_at_each_backward(view: str) -> None:
    x, tool = leaf(), Tripled(view)
    with amanda.apply(tool):
        y = x.exp().sum()
        y.backward(retain_graph=True)
        y.backward()
    assert tool.ran == 2
    assert torch.allclose(x.grad, 6 * X.exp())


@views
def test_accumulated_gradients_are_the_sum(view: str) -> None:
    x, tool = leaf(), Tripled(view)
    with amanda.apply(tool):
        for _ in range(4):
            x.exp().sum().backward()
    assert torch.allclose(x.grad, 12 * X.exp())


@views
def test_several_losses_at_once(view: str) -> None:
    x, tool = leaf(), Tripled(view)
    with amanda.apply(tool):
        y = x.exp()
        torch.autograd.backward([y.sum(), (2 * y).sum()], [torch.ones(()), torch.ones(())])
    assert tool.ran == 1
    assert torch.allclose(x.grad, 9 * X.exp())


@views
def test_grad_of_chosen_inputs(view: str) -> None:
    x, tool = leaf(), Tripled(view)
    with amanda.apply(tool):
        h = x.sin()
        y = h.exp().sum()
        of_h, of_x = torch.autograd.grad(y, [h, x])
    assert torch.allclose(of_h, 3 * X.sin().exp())
    assert torch.allclose(of_x, 3 * X.sin().exp() * X.cos())
    assert x.grad is None


@views
def test_backward_to_chosen_inputs(view: str) -> None:
    x, z, tool = leaf(), leaf(), Tripled(view)
    with amanda.apply(tool):
        (x * z).exp().sum().backward(inputs=[z])
    assert x.grad is None
    assert torch.allclose(z.grad, 3 * (X * X).exp() * X)


# Differentiating twice


def gradient_penalty(model: nn.Module, x: Tensor) -> list[Tensor]:
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    ((gradient.norm(2, dim=1) - 1) ** 2).mean().backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def test_a_gradient_penalty_is_untouched_by_observers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    expected = [grad.clone() for grad in gradient_penalty(model, leaf())]
    model.zero_grad()
    with amanda.apply(*everything()):
        actual = gradient_penalty(model, leaf())
    for one, other in zip(actual, expected, strict=True):
        assert torch.equal(one, other)


@views
def test_a_changed_gradient_is_differentiated_as_the_original(view: str) -> None:
    x = leaf()
    with amanda.apply(Tripled(view)):
        (first,) = torch.autograd.grad((x * x.exp()).sum(), x, create_graph=True)
    assert torch.allclose(first, (1 + 3 * X) * X.exp())
    (second,) = torch.autograd.grad(first.sum(), x)
    # the gradient that came in is x; 3 x takes its place, with the derivative of x
    assert torch.allclose(second, (2 + 3 * X) * X.exp())


def test_hessians_and_their_products_are_right() -> None:
    """To the last bits, since second derivatives of an operator are summed up apart."""

    def f(x: Tensor) -> Tensor:
        return (x.sin() * x**2).sum()

    def derivatives() -> list[Tensor]:
        functional = torch.autograd.functional
        return [
            functional.hessian(f, X),
            functional.hvp(f, X, X)[1],
            functional.jacobian(lambda x: x * x.exp(), X, vectorize=True),
            torch.func.hessian(f)(X),
            torch.func.vmap(torch.func.grad(f))(X),
            torch.func.jacfwd(torch.sin)(X),
        ]

    expected = derivatives()
    with amanda.apply(*everything()):
        actual = derivatives()
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("check", [torch.autograd.gradcheck, torch.autograd.gradgradcheck])
def test_numerical_derivatives_agree(check: Callable[..., bool]) -> None:
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    with amanda.apply(*everything()):
        assert check(lambda x, w: nn.functional.linear(x.sin(), w).relu().sum(), (x, weight))


def test_batched_gradients_are_untouched() -> None:
    x = leaf()
    with amanda.apply(*everything()):
        y = x.sin() * x
        (jacobian,) = torch.autograd.grad(y, x, torch.eye(6).view(6, 2, 3), is_grads_batched=True)
    diagonal = jacobian.reshape(6, 6).diagonal().view(2, 3)
    assert torch.allclose(diagonal, X.sin() + X * X.cos())


def test_batched_gradients_are_a_batch_without_a_value() -> None:
    class Reads(amanda.Tool):
        def __init__(self) -> None:
            super().__init__()
            self.said: list[str] = []
            self.add_inst_for_gradient(self.analyze)

        def analyze(self, ctx: amanda.OpContext) -> None:
            def read(grad: Tensor) -> None:
                with pytest.raises(amanda.ValueUnavailableError) as raised:
                    ctx.numpy(grad)
                self.said.append(str(raised.value))

            ctx.insert_on_grad_outputs(read)

    x, tool, forward = leaf(), Reads(), Record()
    with amanda.apply(tool, forward):
        torch.autograd.grad(x.sin(), x, torch.eye(6).view(6, 2, 3), is_grads_batched=True)
    assert len(tool.said) == 1
    assert "is_grads_batched=True" in tool.said[0]
    assert not [id for id in forward.ran if "batch_dim" in id]


# Hooks of the program


def test_hooks_of_the_program_see_what_they_always_do() -> None:
    def run() -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=False), nn.Linear(4, 1))
        seen: list[Tensor] = []
        model[0].register_full_backward_hook(lambda m, gi, go: seen.extend([gi[0], go[0]]))
        model[1].register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
        model[2].weight.register_hook(lambda grad: grad * 3)
        model[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        x = leaf()
        h = model[0](x)
        h.register_hook(seen.append)
        h.retain_grad()
        both = torch.autograd.graph.register_multi_grad_hook([h, x], seen.extend)
        model[2](model[1](h)).sum().backward()
        both.remove()  # it would keep all of it alive
        return [*seen, h.grad, x.grad, *(p.grad for p in model.parameters())]

    expected = run()
    with amanda.apply(*everything()):
        actual = run()
    for one, other in zip(actual, expected, strict=True):
        assert torch.equal(one, other)


def test_hooks_of_the_program_are_no_operators() -> None:
    layer, x, tool = nn.Linear(3, 2), leaf(), Record()
    layer.register_full_backward_hook(lambda module, given, taken: (given[0] * 2,))
    with amanda.apply(tool):
        layer(x).sum().backward()
    assert tool.ran == ["linear", "sum"]


def test_a_hook_on_an_output_comes_before_its_operators_routines() -> None:
    x, seen = leaf(), []
    with amanda.apply(Insert("insert_on_grad_outputs", "exp", lambda g: g * 10)):
        y = x.exp()
        y.register_hook(lambda grad: seen.append(grad))
        y.sum().backward()
    assert torch.equal(seen[0], torch.ones_like(X))
    assert torch.allclose(x.grad, 10 * X.exp())


def test_saved_tensor_hooks_are_untouched() -> None:
    packed: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor.numel())
        return tensor.clone()

    def run() -> Tensor:
        x = leaf()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            y = (x.sin() * x).sum()
        y.backward()
        return x.grad

    expected, count = run(), len(packed)
    packed.clear()
    with amanda.apply(*everything()):
        actual = run()
    assert torch.equal(actual, expected)
    assert len(packed) == count


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected in")
def test_anomaly_mode_finds_the_operator() -> None:
    with amanda.apply(*everything()), torch.autograd.detect_anomaly():
        y = (leaf() * 0).sqrt().sum()
        with pytest.raises(RuntimeError, match="'SqrtBackward0' returned nan values"):
            (y * 0).backward()


# Threads


@views
def test_another_thread_without_tools_that_runs_the_backward_sees_nothing(view: str) -> None:
    x, tool = leaf(), Tripled(view)
    with amanda.apply(tool):
        y = x.exp().sum()
        thread = threading.Thread(target=y.backward)
        thread.start()
        thread.join()
    assert tool.ran == 0
    assert torch.equal(x.grad, X.exp())


@views
def test_a_backward_within_a_backward(view: str) -> None:
    """As reentrant checkpointing runs it."""
    x, tool = leaf(), Tripled(view)
    with amanda.apply(tool):
        checkpoint(lambda x: x.sin().exp(), x, use_reentrant=True).sum().backward()
    assert tool.ran == 1
    assert torch.allclose(x.grad, 3 * X.sin().exp() * X.cos())


# Routines that run a backward


@views
@pytest.mark.parametrize("point", ["insert_before_op", "insert_after_op"])
def test_a_backward_of_the_programs_graph_that_a_routine_runs_is_not_seen(
    view: str, point: str
) -> None:
    x, tool = leaf(), Tripled(view)
    found: list[Tensor] = []
    graph: list[Tensor] = []

    def look(*tensors: Tensor) -> None:
        with torch.enable_grad():
            found.extend(torch.autograd.grad(graph[0], x, retain_graph=True))

    with amanda.apply(tool, Insert(point, "sin", look)):
        graph.append(x.exp().sum())
        X.sin()
        assert tool.ran == 0
        graph.pop().backward()  # it has the tool that has the routine that has it
    assert torch.equal(found[0], X.exp())
    assert tool.ran == 1
    assert torch.equal(x.grad, 3 * X.exp())


@views
def test_nor_one_that_a_routine_on_gradients_runs(view: str) -> None:
    x, tool = leaf(), Tripled(view)
    found: list[Tensor] = []
    graph: list[Tensor] = []

    def look(grad: Tensor) -> None:
        found.extend(torch.autograd.grad(graph[0], x, retain_graph=True))

    with amanda.apply(tool, Insert("insert_on_grad_outputs", "sin", look)):
        graph.append(x.exp().sum())
        leaf().sin().sum().backward()
    graph.clear()
    assert torch.equal(found[0], X.exp())
    assert tool.ran == 0


def test_what_a_routine_runs_back_through_a_checkpoint_is_computed_as_in_the_program() -> None:
    """What is run again there is run with what tools substitute."""
    x, found = leaf(), []
    graph: list[Tensor] = []

    def look(*tensors: Tensor) -> None:
        found.extend(torch.autograd.grad(graph[0], x, retain_graph=True))

    doubled = before("exp", lambda x: x * 2)
    with amanda.apply(doubled, before("sin", look)):
        graph.append(checkpoint(lambda x: x.exp() * 3, x, use_reentrant=False).sum())
        X.sin()
    graph.clear()
    assert torch.equal(found[0], 3 * (2 * X).exp())


def test_a_backward_in_a_scope_that_a_routine_opens_is_seen_by_its_tools() -> None:
    inner = Tripled("native")

    def look(*tensors: Tensor) -> None:
        with amanda.apply(inner), torch.enable_grad():
            leaf().exp().sum().backward()

    with amanda.apply(before("sin", look)):
        X.sin()
    assert inner.ran == 1
