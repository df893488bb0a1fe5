"""What an operator costs when it is instrumented, beside PyTorch's own ways to see operators.

Prints microseconds per call, the best of several rounds, and ratios to the plain call. All are
measured in one run, on one thread, on 4x4 tensors, so that nothing but the overhead shows.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import amanda
import torch
from rich.console import Console
from rich.table import Table
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS, BURSTS, CALLS = 8, 40, 20


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


def measure(call: Callable[[], torch.Tensor]) -> float:
    """Microseconds per call: the least of many short bursts, which a busy machine disturbs less."""
    repeat = Repeat(call)
    repeat()  # operators are analyzed once
    best = float("inf")
    for _ in range(BURSTS):
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
        "linear, gradient": ("linear", lambda: torch.nn.functional.linear(x, trained)),
    }
    ways: dict[str, Callable[[str], contextlib.AbstractContextManager[Any]]] = {
        "plain": lambda op: contextlib.nullcontext(),
        "scope open, type not wanted": lambda op: amanda.apply(Empty(["conv2d"], insert=True)),
        "type wanted, no action": lambda op: amanda.apply(Empty([op], insert=False)),
        "type wanted, empty routine": lambda op: amanda.apply(Empty([op], insert=True)),
        "TorchFunctionMode": lambda op: FunctionMode(),
        "TorchDispatchMode": lambda op: DispatchMode(),
    }
    best = {(way, name): float("inf") for way in ways for name in calls}
    for _ in range(ROUNDS):  # by turns, so that a busy machine disturbs all alike
        for way, around in ways.items():
            for name, (op, call) in calls.items():
                with around(op):
                    best[way, name] = min(best[way, name], measure(call))
    table = Table("us per call (ratio to plain)", *calls, title="Costs of one operator")
    for way in ways:
        cells = [(best[way, name], best[way, name] / best["plain", name]) for name in calls]
        table.add_row(way, *(f"{us:.2f} ({ratio:.2f})" for us, ratio in cells))
    Console().print(table)


if __name__ == "__main__":
    main()
