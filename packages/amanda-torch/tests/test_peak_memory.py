"""How many bytes of tensors a step of training holds at most: what PyTorch's allocator tells."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from torch import nn
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[], None]


class Empty(amanda.Tool):
    """Runs a routine that does nothing before each operator, forward and backward."""

    keeps = False

    def __init__(self) -> None:
        super().__init__()
        self.add_inst_for_op(self.forward)
        self.add_inst_for_op(self.backward, backward=True, keep_forward=self.keeps)

    def forward(self, ctx: amanda.OpContext) -> None:
        ctx.insert_before_op(self.nothing)

    def backward(self, ctx: amanda.OpContext) -> None:
        ctx.insert_before_backward_op(self.nothing)

    def nothing(self, *tensors: object) -> None:
        pass


class EmptyOnGradients(Empty):
    """Does the same with the gradients of operators as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.add_inst_for_gradient(self.gradient)

    def gradient(self, ctx: amanda.OpContext) -> None:
        ctx.insert_on_grad_outputs(self.nothing)
        ctx.insert_on_grad_inputs(self.nothing)


class LooksBack(Empty):
    """Looks in its analysis of the backward at what the forward operator gave."""

    keeps = True

    def __init__(self) -> None:
        self.sums: list[float] = []
        super().__init__()

    def backward(self, ctx: amanda.OpContext) -> None:
        self.sums.append(float(ctx.outputs[0].sum()))


def convolutions() -> Step:
    """A residual network whose activations are in place or not."""
    block = nn.Sequential(
        nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)
    )
    stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
    head = nn.Sequential(nn.Flatten(), nn.Linear(8 * 14 * 14, 5))
    x = torch.randn(4, 3, 16, 16)

    def output() -> torch.Tensor:
        hidden = stem(x)
        hidden = hidden + block(hidden)
        return head(torch.relu_(hidden))

    return training(nn.ModuleList([stem, block, head]), output)


def transformer() -> Step:
    """Two layers of attention."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x = torch.randn(4, 8, 16)
    return training(model, lambda: model(x))


def training(model: nn.Module, output: Callable[[], torch.Tensor]) -> Step:
    """A step of training of a model that gives ``output()``."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        output().square().mean().backward()
        optimizer.step()

    return step


def peak(step: Step) -> int:
    """The most bytes that a step held of those which it allocated."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    results: Any = profiler.profiler.kineto_results  # type: ignore[union-attr]
    events = list(results.experimental_event_tree())
    for event in events:
        events += event.children
    allocations = [event for event in events if event.tag == _EventType.Allocation]
    most = held = 0
    for event in sorted(allocations, key=lambda event: event.start_time_ns):
        held += event.extra_fields.alloc_size
        most = max(most, held)
    return most


def peaks(make: Callable[[], Step], tool: amanda.Tool | None, steps: int = 3) -> list[int]:
    """The peaks of the first steps of training."""
    step = make()
    with contextlib.nullcontext() if tool is None else amanda.apply(tool):
        return [peak(step) for _ in range(steps)]


models = pytest.mark.parametrize("make", [convolutions, transformer])


@models
def test_empty_routines_hold_no_tensor_longer(make: Callable[[], Step]) -> None:
    plain = peaks(make, None)
    assert plain[0] > 0
    assert peaks(make, Empty()) == plain


@models
def test_empty_routines_on_gradients_hold_no_tensor_longer_once_analyzed(
    make: Callable[[], Step],
) -> None:
    assert peaks(make, EmptyOnGradients())[1:] == peaks(make, None)[1:]


@models
def test_an_analysis_of_the_backward_that_looks_at_the_forward_side_holds_it_for_one_step(
    make: Callable[[], Step],
) -> None:
    plain, tool = peaks(make, None), LooksBack()
    first, *later = peaks(make, tool)
    assert tool.sums
    assert first > plain[0]
    assert later == plain[1:]
