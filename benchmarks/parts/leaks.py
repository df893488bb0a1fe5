"""Whether memory or objects pile up over ten thousand steps, or over many scopes."""

from __future__ import annotations

import gc
import importlib
import time
from typing import TYPE_CHECKING

import amanda
import torch
from amanda_tools import Flops, Profile

from benchmarks.empty import Empty
from benchmarks.machine import resident
from benchmarks.measuring import reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring import Call
    from benchmarks.results import Part

STEPS, SETTLED = 10_000, 2_000
SECONDS = 25.0  # after which a way is ended, with the steps that it has taken
MOST_OBJECTS, MOST_BYTES = 100, 2**20


def run(part: Part) -> None:
    """Take the steps under several tools, on both frameworks."""
    torch.set_num_threads(1)
    step = training()
    ways: dict[str, Callable[[], amanda.Tool]] = {
        "PyTorch, empty routines, forward and backward": lambda: Empty(backward=True),
        "PyTorch, `flops`": Flops,
        "PyTorch, `profile`": Profile,
    }
    rows: list[list[str]] = []
    plain = add(part, rows, "PyTorch, plain", step)
    for name, tool in ways.items():
        with amanda.apply(tool()):
            add(part, rows, name, step, plain)
    add(part, rows, "PyTorch, a scope for each step", within_scope(step), plain)
    try:
        call = tensorflow_call()
        plain = add(part, rows, "TensorFlow, plain", call)
        with amanda.apply(Empty()):
            add(part, rows, "TensorFlow, host routine at all operators", call, plain)
    except Exception as error:
        part.note(f"TensorFlow did not run: {reason(error)}")


def training() -> Call:
    """A step of training of a perceptron."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(4, 8)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def within_scope(step: Call) -> Call:
    """The step in a scope of its own, with a tool of its own."""

    def scoped() -> None:
        with amanda.apply(Empty(backward=True)):
            step()

    return scoped


def tensorflow_call() -> Call:
    """A call of a small ``tf.function``."""
    importlib.import_module("amanda_tensorflow")  # before graphs are built, as its page asks
    import tensorflow as tf

    function, x = tf.function(lambda x: tf.nn.relu(tf.tanh(x))), tf.ones((4, 4))
    return lambda: function(x)


def add(part: Part, rows: list[list[str]], name: str, step: Call, plain: int | None = None) -> int:
    """Take the steps and add a row of what has piled up after the first of them.

    Args:
        plain: the bytes that piled up without a tool, as a process that works goes on growing a
            little; None if this is that.

    Returns:
        the bytes.
    """
    steps = STEPS // 20 if part.is_quick else STEPS
    settled = steps * SETTLED // STEPS
    end = time.monotonic() + SECONDS
    taken = 0
    before = after = (0, 0)
    while taken < steps and (time.monotonic() < end or taken < settled):
        step()
        taken += 1
        if taken == settled:
            before = state()
    after = state()
    grown, objects = after[0] - before[0], after[1] - before[1]
    further = max(1, taken - settled)
    rows.append(
        [
            name,
            f"{taken:,}",
            f"{before[0] / 2**20:.1f}",
            f"{grown / 2**20:+.2f}",
            f"{grown / further:+.1f}",
            f"{objects:+,}",
        ]
    )
    columns = ["", "steps", f"MiB after {settled:,}", "MiB more at the end", "bytes a step"]
    part.table(
        "What piles up",
        [*columns, "objects more at the end"],
        rows,
        "Resident memory of the process and objects that Python's collector tracks, after a "
        f"collection. A way ends after {SECONDS:.0f} s, with fewer steps.",
    )
    if plain is not None:
        more = grown - plain
        part.goal(
            f"leaks: {name}, {further:,} further steps",
            f"at most {MOST_OBJECTS} objects, and 1 MiB more than plain",
            f"{objects:+,} objects, {more / 2**20:+.2f} MiB",
            objects <= MOST_OBJECTS and more <= MOST_BYTES,
        )
    return grown


def state() -> tuple[int, int]:
    """Bytes that the process holds, and objects that are alive."""
    gc.collect()
    return resident(), len(gc.get_objects())
