"""What it takes to open a scope and to close it again, with nothing run in it."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import amanda
import torch
from amanda_tools import Flops, Profile

from benchmarks.empty import Empty
from benchmarks.measuring import Spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.results import Part

FEW = ["linear", "conv2d", "relu"]
TOOLS: dict[str, tuple[Callable[[], amanda.Tool], float | None]] = {
    "one type": (lambda: Empty(["linear"]), None),
    "three types": (lambda: Empty(FEW), 1.0),
    "all forward operators": (Empty, 10.0),
    "all, forward and backward": (lambda: Empty(backward=True), None),
    "`flops`": (Flops, None),
    "`profile`": (Profile, None),
}


def seconds(make: Callable[[], amanda.Tool]) -> tuple[float, float]:
    """How long opening and closing took, once."""
    tool = make()
    scope = amanda.apply(tool)
    start = time.process_time()
    scope.__enter__()
    opened = time.process_time()
    scope.__exit__(None, None, None)
    return opened - start, time.process_time() - opened


def run(part: Part) -> None:
    """Time it for few types and for many."""
    torch.nn.Linear(2, 2)(torch.zeros(1, 2))
    rounds = 4 if part.is_quick else 25
    after_others: dict[str, list[tuple[float, float]]] = {name: [] for name in TOOLS}
    again: dict[str, list[tuple[float, float]]] = {name: [] for name in TOOLS}
    order = list(TOOLS)
    for number in range(rounds):
        random.Random(number).shuffle(order)
        for name in order:
            make = TOOLS[name][0]
            after_others[name].append(seconds(make))
            again[name] += [seconds(make) for _ in range(3)]
    rows = []
    for name, (_, most) in TOOLS.items():
        both = total(again[name])
        opening, closing = (Spread.of(1e3 * one[i] for one in again[name]).text() for i in (0, 1))
        first = f"{1e3 * sum(after_others[name][0]):.1f}"
        rows.append(
            [name, opening, closing, both.text(), total(after_others[name][1:]).text(), first]
        )
        if most is not None:
            part.goal(
                f"opening and closing a scope, {name}",
                f"below {most:.0f} ms",
                f"{both.text()} ms",
                both.median < most,
            )
    part.table(
        "Milliseconds to open and close a scope on PyTorch",
        [
            "what the tool wants",
            "opening",
            "closing",
            "both",
            "both, after a scope of another kind",
            "both, the first time",
        ],
        rows,
        "Median and quartiles; nothing runs in the scope. The first columns are of scopes that "
        "follow one of the same kind.",
    )


def total(times: list[tuple[float, float]]) -> Spread:
    """Milliseconds of opening and closing together."""
    return Spread.of(1e3 * sum(both) for both in times)
