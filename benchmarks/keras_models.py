"""The models of Keras that are measured: by predict, by fit and in a session of TensorFlow 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring import Call


@dataclass
class KerasWorkload:
    """A model with what it is run on."""

    build: Callable[[], Any]
    x: Any
    y: Any

    def call(self, how: str) -> Call:
        """A call by one of the ways that users of Keras and TensorFlow have.

        Args:
            how: ``predict``, ``fit`` or ``Session``.
        """
        if how == "Session":
            return self.in_session()
        model = self.build()
        model.compile("sgd", "categorical_crossentropy", jit_compile=False)
        if how == "fit":
            return lambda: model.train_on_batch(self.x, self.y)
        return lambda: model.predict_on_batch(self.x)

    def in_session(self) -> Call:
        """A call of inference through a session, on a graph of its own with constant weights."""
        from tensorflow.python.framework import convert_to_constants

        model = self.build()
        function = tf.function(lambda x: model(x, training=False))
        concrete = function.get_concrete_function(tf.TensorSpec(self.x.shape, self.x.dtype))
        frozen = convert_to_constants.convert_variables_to_constants_v2(concrete)
        graph = tf.Graph()
        with graph.as_default():
            tf.graph_util.import_graph_def(frozen.graph.as_graph_def(), name="")
        session = tf.compat.v1.Session(graph=graph)
        fetch, feed = frozen.outputs[0].name, {frozen.inputs[0].name: self.x}
        return lambda: session.run(fetch, feed)


def images(batch: int, size: int) -> tuple[Any, Any]:
    """Random images, with their classes."""
    random = np.random.default_rng(0)
    x = random.standard_normal((batch, size, size, 3)).astype(np.float32)
    return x, np.eye(10, dtype=np.float32)[random.integers(0, 10, batch)]


def mobilenet(size: int = 96, batch: int = 8) -> KerasWorkload:
    """MobileNetV2."""
    shape = (size, size, 3)
    return KerasWorkload(
        lambda: keras.applications.MobileNetV2(shape, weights=None, classes=10),
        *images(batch, size),
    )


def resnet50(size: int = 96, batch: int = 8) -> KerasWorkload:
    """ResNet50."""
    shape = (size, size, 3)
    return KerasWorkload(
        lambda: keras.applications.ResNet50(weights=None, input_shape=shape, classes=10),
        *images(batch, size),
    )


def small_transformer() -> KerasWorkload:
    """The small Transformer of the tests, in ``tests/zoo``."""
    import small_keras

    random = np.random.default_rng(0)
    tokens = random.integers(0, 50, (8, 12)).astype(np.int32)
    classes = np.eye(10, dtype=np.float32)[random.integers(0, 10, 8)]
    return KerasWorkload(lambda: small_keras.transformer()[0], tokens, classes)
