"""Ways to run TensorFlow: under tools of Amanda, and under TensorFlow's own means."""

from __future__ import annotations

import contextlib
import tempfile
from typing import TYPE_CHECKING

import amanda
import amanda_tensorflow  # noqa: F401  # before graphs are built, as its page asks
import tensorflow as tf
from amanda_tools import Flops, Profile

from benchmarks.empty import Empty
from benchmarks.measuring import around
from benchmarks.tool_ways import traced, under

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.keras_models import KerasWorkload
    from benchmarks.measuring import Call, Way

NEVER, PURE, ONE, FORWARD = (
    "a type that never occurs",
    "pure routine, Conv2D and MatMul",
    "host routine, Conv2D",
    "host routine, all forward",
)
BOTH = "host routine, forward and backward"


class Pure(amanda.Tool):
    """Gives back the weight of products, by a routine that is compiled into the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.add_inst_for_op(self.analyze, ops=["Conv2D", "MatMul"])

    def analyze(self, ctx: amanda.OpContext) -> None:
        ctx.insert_before_op(tf.identity, inputs=[1], pure=True)


def amanda_ways(training: bool) -> dict[str, Way]:
    """From a type that never occurs to ``trace``."""
    ways = {
        NEVER: under(lambda: Empty(["Conv3D"])),
        PURE: under(Pure),
        ONE: under(lambda: Empty(["Conv2D"])),
        FORWARD: under(Empty),
    }
    if training:
        ways[BOTH] = under(lambda: Empty(backward=True))
    return {**ways, "`flops`": under(Flops), "`profile`": under(Profile), "`trace`": traced()}


def tensorflow_ways(workload: KerasWorkload, how: str) -> dict[str, Way]:
    """TensorFlow's own means."""
    ways: dict[str, Way] = {"TF profiler": around(profiled)}
    if how != "Session":  # whose graph is there already, and is not checked
        ways["TF check-numerics callbacks"] = checked(workload, how)
    return ways


@contextlib.contextmanager
def profiled() -> Iterator[None]:
    """TensorFlow's profiler; what it does at its end is not timed."""
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        try:
            yield
        finally:
            tf.profiler.experimental.stop(save=False)


def checked(workload: KerasWorkload, how: str) -> Way:
    """A model of its own that was built and first called while numerics are checked."""
    calls: list[Call] = []

    @contextlib.contextmanager
    def way(work: Call) -> Iterator[Call]:
        if not calls:
            tf.debugging.enable_check_numerics()
            try:
                call = workload.call(how)
                call()
            finally:
                tf.debugging.disable_check_numerics()
            calls.append(call)
        yield calls[0]

    return way
