"""What instrumentation costs on TensorFlow graphs, measured in one run.

    python benchmarks/tensorflow_costs.py

Prints the cost of a routine for each execution, through tf.function and through Session.run; the
time of the first instrumented call of ResNet50; and what the notes that are taken while graphs are
built cost, by building the same graph in processes with and without the driver.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

OPERATORS = 10


def time_of(call: Callable[[], Any], repeats: int) -> float:
    """Median seconds of a call, after some calls to warm up."""
    for _ in range(10):
        call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def tools() -> dict[str, Any]:
    """Tools that insert one routine before each Tanh."""
    import amanda

    class Insert(amanda.Tool):
        def __init__(self, routine: Callable[..., Any], pure: bool) -> None:
            super().__init__()
            self.add_inst_for_op(lambda ctx: ctx.insert_before_op(routine, pure=pure), ops=["Tanh"])

    class Other(amanda.Tool):
        def __init__(self) -> None:
            super().__init__()
            self.add_inst_for_op(lambda ctx: None, ops=["Conv3D"])

    return {
        "no tool": None,
        "types not wanted": Other(),
        "pure routine": Insert(lambda x: x * 1.5, pure=True),
        "host routine that looks": Insert(lambda x: None, pure=False),
        "host routine that replaces": Insert(lambda x: x * 1.5, pure=False),
    }


def routine_costs(repeats: int) -> None:
    """Print the cost of a routine for each execution."""
    import amanda
    import numpy as np
    import tensorflow as tf

    def chain(x: Any) -> Any:
        for _ in range(OPERATORS):
            x = tf.tanh(x)
        return x

    function, x = tf.function(chain), tf.ones((64, 64))
    graph = tf.Graph()
    with graph.as_default():
        placeholder = tf.compat.v1.placeholder(tf.float32, (64, 64))
        fetch = chain(placeholder)
    session = tf.compat.v1.Session(graph=graph)
    feed = {placeholder: np.ones((64, 64), np.float32)}
    ways = {
        "tf.function": lambda: function(x).numpy(),
        "Session.run": lambda: session.run(fetch, feed),
    }
    print(f"{OPERATORS} x Tanh of 64 x 64, microseconds for each execution of a routine")
    print(f"{'':28}" + "".join(f"{way:>14}" for way in ways))
    plain: dict[str, float] = {}
    for name, tool in tools().items():
        costs = []
        for way, call in ways.items():
            if tool is None:
                plain[way] = time_of(call, repeats)
                costs.append(f"{plain[way] * 1e6:9.0f} call")
            else:
                with amanda.apply(tool):
                    seconds = time_of(call, repeats) - plain[way]
                costs.append(f"{seconds / OPERATORS * 1e6:14.1f}")
        print(f"{name:28}" + "".join(f"{cost:>14}" for cost in costs))


def resnet_costs() -> None:
    """Print how long the first instrumented call of ResNet50 takes."""
    import amanda
    import keras
    import numpy as np

    model = keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3))
    model.compile("sgd", "categorical_crossentropy", jit_compile=False)
    x, y = np.ones((2, 64, 64, 3), np.float32), np.eye(1000, dtype=np.float32)[:2]

    def seconds(call: Callable[[], Any]) -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    def noting(ctx: Any) -> None:
        ctx.insert_after_op(lambda *outputs: None)

    for name, call in {
        "predict": lambda: model.predict_on_batch(x),
        "train": lambda: model.train_on_batch(x, y),
    }.items():
        call()
        plain = seconds(call)
        for ops in (["Conv2D"], None):
            tool = amanda.Tool()
            tool.add_inst_for_op(noting, ops=ops)
            with amanda.apply(tool):
                first, second = seconds(call), seconds(call)
            wanted = "all operators" if ops is None else "Conv2D"
            print(
                f"ResNet50 {name}, {wanted}: plain {plain:.2f} s, first {first:.2f} s, "
                f"second {second:.2f} s"
            )


BUILD = """
import sys, time
import tensorflow as tf
if sys.argv[1] == "noted":
    import amanda_tensorflow
import keras

def build():
    keras.utils.clear_session()
    model = keras.applications.MobileNetV2(weights=None, input_shape=(64, 64, 3), classes=10)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x, training=True))
        return tape.gradient(loss, [v.value for v in model.trainable_variables])

    start = time.perf_counter()
    step.get_concrete_function(tf.TensorSpec((1, 64, 64, 3)))
    return time.perf_counter() - start

build()
print(min(build() for _ in range(3)))
"""


def building_costs(repeats: int) -> None:
    """Print how much longer it takes to build a training step while notes are taken."""

    def best(variant: str) -> float:
        times = [
            float(
                subprocess.run(
                    [sys.executable, "-c", BUILD, variant],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout.split()[-1]
            )
            for _ in range(repeats)
        ]
        return min(times)

    plain, noted = best("plain"), best("noted")
    print(
        f"tracing a training step of MobileNetV2: {plain:.2f} s without the driver, "
        f"{noted:.2f} s with it ({noted / plain - 1:+.1%})"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    routine_costs(options.repeats)
    resnet_costs()
    building_costs(options.processes)


if __name__ == "__main__":
    main()
