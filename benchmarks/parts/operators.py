"""One operator of PyTorch on tensors so small that nothing but the overhead shows."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import torch
from torch.nn import functional
from torch.utils._debug_mode import DebugMode

from benchmarks.empty import Empty
from benchmarks.measuring import PLAIN, around, interleaved_works, plainly
from benchmarks.tool_ways import under
from benchmarks.torch_ways import (
    DISPATCH_MODE,
    FUNCTION_MODE,
    DispatchMode,
    FunctionMode,
    nothing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measuring import Call, Way
    from benchmarks.results import Part

CALLS = 50


class Repeat(torch.nn.Module):
    """Calls an operator many times, as a module does."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self.call = call

    def forward(self) -> None:
        call = self.call
        for _ in range(CALLS):
            call()


class Once(torch.nn.Module):
    """A module of its own for one operator, so that a hook can see it."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self.call = call

    def forward(self) -> object:
        return self.call()


def operators() -> dict[str, tuple[str, Callable[[], object]]]:
    """The type and a call of each operator, by what the table calls it."""
    x, w, b = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)
    trained = torch.randn(4, 4, requires_grad=True)
    image, kernels = torch.randn(1, 4, 6, 6), torch.randn(4, 4, 3, 3)
    return {
        "relu": ("relu", lambda: torch.relu(x)),
        "linear": ("linear", lambda: functional.linear(x, w, b)),
        "linear, gradient": ("linear", lambda: functional.linear(x, trained, b)),
        "conv2d": ("conv2d", lambda: functional.conv2d(image, kernels)),
        "layer_norm": ("layer_norm", lambda: functional.layer_norm(x, [4], b, b)),
    }


def ways(op: str) -> dict[str, Way]:
    """What is around an operator of a type."""
    return {
        PLAIN: plainly(),
        "scope open, type not wanted": under(lambda: Empty(["conv3d"])),
        "type wanted, no action": under(lambda: Empty([op], insert=False)),
        "type wanted, empty routine": under(lambda: Empty([op])),
        FUNCTION_MODE: around(FunctionMode),
        DISPATCH_MODE: around(DispatchMode),
        "DebugMode": around(DebugMode),
        "module of its own, with a hook": hook,
    }


@contextlib.contextmanager
def hook(work: Call) -> Iterator[Call]:
    """The way of hooks: a module around each call."""
    assert isinstance(work, Repeat)
    once = Once(work.call)
    once.register_forward_hook(nothing)
    yield Repeat(once)


def run(part: Part) -> None:
    """Time all operators under all ways."""
    torch.set_num_threads(1)
    chosen = operators()
    works = {
        (way, name): (Repeat(call), around_it)
        for name, (op, call) in chosen.items()
        for way, around_it in ways(op).items()
    }
    found = interleaved_works(works, part.seconds(35), clock=time.process_time, turn=0.02)
    names = list(dict.fromkeys(way for way, _ in works))
    rows = []
    for way in names:
        row = [way]
        for name in chosen:
            measured, plain = found[way, name], found[PLAIN, name]
            if measured.failure is not None:
                row.append(measured.failure)
            elif way == PLAIN:
                row.append(measured.seconds.text(scale=1e6 / CALLS))
            else:
                row.append(measured.added(plain).text("{:+.2f}", 1e6 / CALLS))
        rows.append(row)
    part.table(
        "Microseconds of an operator, and what each way adds",
        ["", *chosen],
        rows,
        f"Tensors of 4 x 4 (conv2d: 6 x 6 with four channels); {CALLS} calls in a row; median and "
        f"quartiles of {found[PLAIN, 'relu'].seconds.count} rounds. Without a gradient but where "
        "it says so. A hook needs a module around the operator, whose call is in its figure.",
    )
