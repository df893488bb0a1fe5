"""What an operator costs when it is instrumented, beside PyTorch's own ways to see operators.

Prints microseconds per call, the best of several rounds, and ratios to the plain call. All are
measured in one run, on one thread, on 4x4 tensors, so that nothing but the overhead shows.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import amanda
import torch
from rich.console import Console
from rich.table import Table
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

ROUNDS, CALLS = 9, 3000


class Empty(amanda.Tool):
    """Wants some operator types, and inserts a routine that does nothing, or none at all."""

    def __init__(self, ops: list[str], insert: bool) -> None:
        super().__init__()
        self.insert = insert
        self.add_inst_for_op(self.analyze, ops=ops)

    def analyze(self, ctx: amanda.OpContext) -> None:
        if self.insert:
            ctx.insert_before_op(self.nothing)

    def nothing(self, *inputs: torch.Tensor) -> None:
        pass


class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Repeat(torch.nn.Module):
    """Calls an operator as a module does."""

    def __init__(self, call: Callable[[], torch.Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self) -> None:
        call = self.call
        for _ in range(CALLS):
            call()


def measure(
    call: Callable[[], torch.Tensor], around: contextlib.AbstractContextManager[Any]
) -> float:
    """Microseconds per call within a context."""
    repeat, best = Repeat(call), float("inf")
    with around:
        for _ in range(ROUNDS):
            start = time.perf_counter()
            repeat()
            best = min(best, time.perf_counter() - start)
    return best / CALLS * 1e6


def main() -> None:
    torch.set_num_threads(1)
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    trained = torch.randn(4, 4, requires_grad=True)
    calls: dict[str, tuple[str, Callable[[], torch.Tensor]]] = {
        "relu": ("relu", lambda: torch.relu(x)),
        "linear": ("linear", lambda: torch.nn.functional.linear(x, w)),
        "linear, with gradient": ("linear", lambda: torch.nn.functional.linear(x, trained)),
    }
    ways: dict[str, Callable[[str], contextlib.AbstractContextManager[Any]]] = {
        "plain": lambda op: contextlib.nullcontext(),
        "scope open, type not wanted": lambda op: amanda.apply(Empty(["conv2d"], insert=True)),
        "type wanted, no action": lambda op: amanda.apply(Empty([op], insert=False)),
        "type wanted, empty routine": lambda op: amanda.apply(Empty([op], insert=True)),
        "TorchFunctionMode": lambda op: FunctionMode(),
        "TorchDispatchMode": lambda op: DispatchMode(),
    }
    table = Table("us per call (ratio to plain)", *calls, title="Costs of one operator")
    figures = {
        way: [measure(call, around(op)) for op, call in calls.values()]
        for way, around in ways.items()
    }
    for way, row in figures.items():
        cells = (f"{us:.2f} ({us / plain:.2f})" for us, plain in zip(row, figures["plain"]))
        table.add_row(way, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
