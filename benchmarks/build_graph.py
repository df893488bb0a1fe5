"""Prints the seconds of processor time that it takes to trace a training step of MobileNetV2.

``python -m benchmarks.build_graph plain|noted``: without the driver, or with it imported.
"""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

import keras
import tensorflow as tf


def build() -> float:
    """Trace it once."""
    keras.utils.clear_session()
    model = keras.applications.MobileNetV2(weights=None, input_shape=(64, 64, 3), classes=10)

    def step(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x, training=True))
        return tape.gradient(loss, [v.value for v in model.trainable_variables])

    start = time.process_time()
    tf.function(step).get_concrete_function(tf.TensorSpec((1, 64, 64, 3)))
    return time.process_time() - start


def main() -> None:
    if sys.argv[1] == "noted":
        importlib.import_module("amanda_tensorflow")
    build()
    print(min(build() for _ in range(3)))


if __name__ == "__main__":
    main()
