"""What a routine costs at each execution on TensorFlow, by ``tf.function`` and by a session."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import amanda
import amanda_tensorflow  # noqa: F401  # before graphs are built, as its page asks
import numpy as np
import tensorflow as tf

from benchmarks.measuring import PLAIN, Measured, interleaved, plainly
from benchmarks.tool_ways import under

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring import Call, Way
    from benchmarks.results import Part

OPERATORS = 10
LOOKS = "host routine that looks"
TODAY, SHARE = 47.0, 0.5  # microseconds of a routine that looks when the goal was set; half of it


class Insert(amanda.Tool):
    """Inserts one routine before each Tanh, or some of them."""

    def __init__(self, routine: Callable[..., Any], pure: bool, count: int = 1) -> None:
        super().__init__()
        self.routine, self.pure, self.count = routine, pure, count
        self.add_inst_for_op(self.analyze, ops=["Tanh"])

    def analyze(self, ctx: amanda.OpContext) -> None:
        for _ in range(self.count):
            ctx.insert_before_op(self.routine, pure=self.pure)


class Other(amanda.Tool):
    """Wants a type that never occurs."""

    def __init__(self) -> None:
        super().__init__()
        self.add_inst_for_op(lambda ctx: None, ops=["Conv3D"])


def ways() -> dict[str, Way]:
    """From no tool to several routines at one place."""
    return {
        PLAIN: plainly(),
        "types not wanted": under(Other),
        "pure routine": under(lambda: Insert(lambda x: x * 1.5, pure=True)),
        LOOKS: under(lambda: Insert(lambda x: None, pure=False)),
        "four of them at one place": under(lambda: Insert(lambda x: None, pure=False, count=4)),
        "host routine that replaces": under(lambda: Insert(lambda x: x * 1.5, pure=False)),
    }


def numpy_function(x: Any) -> Any:
    """The same as a routine that looks, as TensorFlow's users write it."""
    for _ in range(OPERATORS):
        tf.numpy_function(lambda _: None, [x], [])
        x = tf.tanh(x)
    return x


def chain(x: Any) -> Any:
    """Some operators one after another."""
    for _ in range(OPERATORS):
        x = tf.tanh(x)
    return x


def session_call(build: Callable[[Any], Any]) -> Call:
    """A call through a session."""
    graph = tf.Graph()
    with graph.as_default():
        placeholder = tf.compat.v1.placeholder(tf.float32, (64, 64))
        fetch = build(placeholder)
        kept = [op for op in graph.get_operations() if op.type == "PyFunc"]
    session = tf.compat.v1.Session(graph=graph)
    feed = {placeholder: np.ones((64, 64), np.float32)}
    return lambda: session.run([fetch, kept], feed)


def function_call(build: Callable[[Any], Any]) -> Call:
    """A call through ``tf.function``."""
    function, x = tf.function(build), tf.ones((64, 64))
    return lambda: function(x).numpy()


def run(part: Part) -> None:
    """Measure both ways to run a graph."""
    found: dict[str, dict[str, Measured]] = {}
    for name, make in {"tf.function": function_call, "Session.run": session_call}.items():
        own = make(numpy_function)
        chosen = {**ways(), "`tf.numpy_function` by hand": instead(own)}
        found[name] = interleaved(
            make(chain), chosen, part.seconds(20), least=part.rounds(3), clock=time.perf_counter
        )
    rows = []
    for way in next(iter(found.values())):
        rows.append([way, *(cell(measured, way) for measured in found.values())])
    part.table(
        "Microseconds of a routine at each execution",
        ["", *found],
        rows,
        f"{OPERATORS} Tanh of 64 x 64: the plain call, and what is added for each operator.",
    )
    spread = found["tf.function"][LOOKS].added(found["tf.function"][PLAIN])
    microseconds = spread.median * 1e6 / OPERATORS
    part.goal(
        "TensorFlow: a host routine that looks",
        f"{TODAY * SHARE:.0f} us (half of {TODAY:.0f})",
        f"{spread.text('{:.0f}', 1e6 / OPERATORS)} us",
        microseconds <= TODAY * SHARE,
    )


def instead(call: Call) -> Way:
    """The way that makes another call."""
    return lambda work: contextlib.nullcontext(call)


def cell(found: dict[str, Measured], way: str) -> str:
    """What stands in the table for one way."""
    measured = found[way]
    if measured.failure is not None:
        return measured.failure
    if way == PLAIN:
        return measured.seconds.text("{:.0f}", 1e6) + " a call"
    return measured.added(found[PLAIN]).text("{:+.1f}", 1e6 / OPERATORS)
