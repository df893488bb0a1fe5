"""Activation checkpointing: what is computed again is the same operators, under the same tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import Insert, Record
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)
from watching import BackwardWatch, GradientWatch, everything

if TYPE_CHECKING:
    from collections.abc import Callable

    Wrap = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]

X = torch.randn(4, 6)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.dropout, self.down = nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.dropout(functional.gelu(self.up(x))))


class Model(nn.Module):
    """Blocks, the last of which is called twice, each as ``wrap`` calls it."""

    def __init__(self, wrap: Wrap) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head, self.wrap = nn.Linear(6, 1), wrap

    def forward(self, x: Tensor) -> Tensor:
        for block in (*self.blocks, self.blocks[1]):
            x = self.wrap(block, x)
        return self.head(x).square().mean()


def plain(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return function(x)


def reentrant(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return checkpoint(function, x, use_reentrant=True)


def non_reentrant(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return checkpoint(function, x, use_reentrant=False)


def to_the_end(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with set_checkpoint_early_stop(False):
        return checkpoint(function, x, use_reentrant=False)


def around(inner: Wrap, outer: Wrap) -> Wrap:
    """A function in a checkpoint, with a checkpoint in it."""

    def wrap(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        return outer(lambda y: inner(function, y).tanh(), x)

    return wrap


def sequential(use_reentrant: bool) -> Wrap:
    def wrap(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        layers = [function, torch.tanh, torch.sin, torch.relu]
        return checkpoint_sequential(layers, 2, x, use_reentrant=use_reentrant)

    return wrap


def unrolled(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return function(x).tanh().sin().relu()


def selective(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        keep = op is torch.ops.aten.addmm.default
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return checkpoint(
        function,
        x,
        use_reentrant=False,
        context_fn=lambda: create_selective_checkpoint_contexts(policy),
    )


# What each way of checkpointing computes, and the same without
WAYS: dict[str, tuple[Wrap, Wrap]] = {
    "reentrant": (reentrant, plain),
    "non-reentrant": (non_reentrant, plain),
    "to the end": (to_the_end, plain),
    "function": (around(plain, non_reentrant), around(plain, plain)),
    "reentrant function": (around(plain, reentrant), around(plain, plain)),
    "nested": (around(non_reentrant, non_reentrant), around(plain, plain)),
    "nested reentrant": (around(reentrant, reentrant), around(plain, plain)),
    "reentrant in non-reentrant": (around(reentrant, non_reentrant), around(plain, plain)),
    "non-reentrant in reentrant": (around(non_reentrant, reentrant), around(plain, plain)),
    "sequential": (sequential(False), unrolled),
    "sequential reentrant": (sequential(True), unrolled),
    "selective": (selective, plain),
}
ways = pytest.mark.parametrize(("wrap", "without"), WAYS.values(), ids=WAYS.keys())


def train(wrap: Wrap, *tools: amanda.Tool) -> list[Tensor]:
    """Losses, gradients and the random state after two steps."""
    model, x = Model(wrap), X.clone().requires_grad_()
    with amanda.apply(*tools):
        losses = []
        for _ in range(2):
            losses.append(model(x))
            losses[-1].backward()
    return [*losses, x.grad, *(p.grad for p in model.parameters()), torch.get_rng_state()]


@ways
def test_observed_gradients_are_those_of_plain_checkpointing(wrap: Wrap, without: Wrap) -> None:
    forward, backward, gradient = everything()
    if wrap is selective:  # which PyTorch allows no second backward, as to show input gradients
        gradient = Insert("insert_on_grad_inputs", ["linear", "gelu", "add"], lambda *grads: None)
    observed = train(wrap, forward, backward, gradient)
    for one, other in zip(observed, train(wrap), strict=True):
        assert torch.equal(one, other)


@ways
def test_what_is_computed_again_is_no_new_operator(wrap: Wrap, without: Wrap) -> None:
    types = ["linear", "gelu", "dropout", "tanh", "add", "sin", "relu", "square", "mean"]
    tool, unwrapped = Record(types), Record(types)
    train(wrap, tool)
    train(without, unwrapped)
    assert tool.analyzed == unwrapped.analyzed
    assert len(tool.ran) > len(unwrapped.ran)


@ways
@pytest.mark.parametrize(
    ("insertion", "routine", "options"),
    [
        ("insert_before_op", lambda weight: weight * 2, {"inputs": [1]}),
        ("insert_after_op", lambda y: y * 2 + 1, {}),
        ("replace_op", lambda x, w, b: x @ w.T - b, {"differentiable": True}),
        ("insert_before_op", lambda weight: weight.tanh(), {"inputs": [1], "differentiable": True}),
    ],
    ids=["before", "after", "replaced", "differentiable"],
)
def test_a_substitution_applies_to_what_is_computed_again(
    wrap: Wrap, without: Wrap, insertion: str, routine: Any, options: Any
) -> None:
    actual = train(wrap, Insert(insertion, "linear", routine, **options))
    expected = train(without, Insert(insertion, "linear", routine, **options))
    for one, other in zip(actual[:-1], expected[:-1], strict=True):
        torch.testing.assert_close(one, other)
    assert not torch.allclose(actual[0], train(without)[0])


@ways
def test_an_analysis_that_needs_outputs_may_still_insert_before(wrap: Wrap, without: Wrap) -> None:
    class Scaled(amanda.Tool):
        def __init__(self) -> None:
            super().__init__()
            self.add_inst_for_op(self.analyze, require_outputs=True, ops=["linear"])

        def analyze(self, ctx: amanda.OpContext) -> None:
            scale = 1 / ctx.outputs[0].detach().abs().max()
            ctx.insert_before_op(lambda weight: weight * scale, inputs=[1])

    actual, expected = train(wrap, Scaled()), train(without, Scaled())
    for one, other in zip(actual[:-1], expected[:-1], strict=True):
        torch.testing.assert_close(one, other)


@ways
def test_replaced_gradients_flow_on(wrap: Wrap, without: Wrap) -> None:
    for insertion in ("insert_on_grad_outputs", "insert_before_backward_op"):
        ops = ["gelu"] if "grad_outputs" in insertion else ["GeluBackward0"]
        actual = train(wrap, Insert(insertion, ops, lambda grad: grad * 3))
        expected = train(without, Insert(insertion, ops, lambda grad: grad * 3))
        for one, other in zip(actual[:-1], expected[:-1], strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("wrap", [reentrant, non_reentrant])
def test_the_backward_pass_is_seen_once_for_each_operator(wrap: Wrap) -> None:
    backward, gradient = BackwardWatch(["gelu"]), GradientWatch(["gelu"])
    train(wrap, backward, gradient)
    calls, steps = 3, 2
    assert backward.ran == ["GeluBackward0"] * calls * steps
    assert {len(grads) for grads in gradient.outputs.values()} == {steps}
    assert len(gradient.analyzed) == calls


@pytest.mark.parametrize("wrap", [reentrant, non_reentrant])
def test_a_backward_after_the_scope_computes_again_without_tools(wrap: Wrap) -> None:
    model, tool = Model(wrap), Record()
    with amanda.apply(tool):
        loss = model(X.clone().requires_grad_())
    ran = len(tool.ran)
    loss.backward()
    assert len(tool.ran) == ran
    assert model.head.weight.grad is not None


@pytest.mark.parametrize("wrap", [reentrant, non_reentrant])
def test_a_backward_within_disabled_computes_again_without_tools(wrap: Wrap) -> None:
    model, tool = Model(wrap), Record()
    with amanda.apply(tool):
        loss = model(X.clone().requires_grad_())
        ran = len(tool.ran)
        with amanda.disabled():
            loss.backward()
        assert len(tool.ran) == ran


@pytest.mark.parametrize("wrap", [reentrant, non_reentrant])
def test_the_scope_of_the_forward_is_that_of_the_computation_again(wrap: Wrap) -> None:
    model, outer, inner = Model(wrap), Record("gelu"), Record("gelu")
    with amanda.apply(outer):
        loss = model(X.clone().requires_grad_())
        with amanda.apply(inner):
            loss.backward()
    assert len(outer.ran) == 6
    assert inner.ran == []


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_outside_of_modules(use_reentrant: bool) -> None:
    weight = torch.randn(6, 6)

    def dense(x: Tensor) -> Tensor:
        return functional.linear(x, weight).relu()

    tool, x = Record(), X.clone().requires_grad_()
    with amanda.apply(tool):
        for _ in range(2):
            checkpoint(dense, x, use_reentrant=use_reentrant).sum().backward()
    assert tool.analyzed == ["linear", "relu", "sum"]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_method_that_checkpoints_parts_of_its_model(use_reentrant: bool) -> None:
    class Encoder(Block):
        def encode(self, x: Tensor) -> Tensor:
            for _ in range(2):
                x = checkpoint(self.part, x, use_reentrant=use_reentrant)
            return x

        def part(self, x: Tensor) -> Tensor:
            return functional.linear(self.up(x), self.down.weight)

    tool, x = Record(), X.clone().requires_grad_()
    with amanda.apply(tool):
        Encoder().encode(x).sum().backward()
    assert tool.analyzed[-3:] == ["up/linear", "linear", "sum"]


def test_a_checkpoint_is_no_operator() -> None:
    for wrap in (reentrant, non_reentrant):
        tool = Record()
        train(wrap, tool)
        assert not [id for id in tool.analyzed if "heckpoint" in id]
