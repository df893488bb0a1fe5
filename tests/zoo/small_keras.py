"""Small Keras models, on whatever backend Keras has; each of the first two with inputs."""

from unittest import mock

import keras
import numpy as np
from keras import layers, ops


class Block(layers.Layer):
    """A layer of a transformer."""

    def __init__(self, size, heads, **options):
        super().__init__(**options)
        self.heads = heads
        self.norm = layers.LayerNormalization(name="norm")
        self.query = layers.Dense(size, name="query")
        self.key = layers.Dense(size, name="key")
        self.value = layers.Dense(size, name="value")
        self.output_ = layers.Dense(size, name="output")
        self.norm_after = layers.LayerNormalization(name="norm_after")
        self.up = layers.Dense(4 * size, activation="relu", name="up")
        self.down = layers.Dense(size, name="down")

    def call(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down(self.up(self.norm_after(x)))

    def attention(self, x):
        query, key, value = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        found = ops.matmul(ops.softmax(scores / query.shape[-1] ** 0.5), value)
        found = ops.transpose(found, (0, 2, 1, 3))
        return self.output_(ops.reshape(found, (-1, *x.shape[1:])))

    def split(self, x):
        shape = (-1, x.shape[1], self.heads, x.shape[2] // self.heads)
        return ops.transpose(ops.reshape(x, shape), (0, 2, 1, 3))


def transformer():
    tokens = keras.Input((12,), dtype="int32")
    x = layers.Embedding(50, 16, name="embed")(tokens)
    for i in range(2):
        x = Block(16, 2, name=f"block{i}")(x)
    x = layers.GlobalAveragePooling1D(name="pool")(x)
    model = keras.Model(tokens, layers.Dense(10, activation="softmax", name="head")(x), name="net")
    return model, np.random.default_rng(1).integers(0, 50, (3, 12)).astype(np.int32)


def mobilenet():
    """The first blocks of MobileNetV2, one with strides and one residual, and a head."""
    data, x = up_to("block_2_add", keras.applications.MobileNetV2, 32, alpha=0.35)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    x = layers.Dense(10, activation="softmax", name="predictions")(x)
    model = keras.Model(data, x, name="mobilenet")
    return model, np.random.default_rng(1).standard_normal((3, 32, 32, 3)).astype(np.float32)


class _Reached(Exception):
    """What the last layer gave."""


def up_to(last, build, size, **options):
    """The input of one of Keras' applications and what a layer gives; none is built behind it."""
    data = keras.Input((size, size, 3))
    call = keras.Layer.__call__

    def called(layer, *args, **kwargs):
        given = call(layer, *args, **kwargs)
        if layer.name == last:
            raise _Reached(given)
        return given

    with mock.patch.object(keras.Layer, "__call__", called):
        try:
            build(weights=None, input_tensor=data, include_top=False, **options)
        except _Reached as reached:
            return data, reached.args[0]
    raise LookupError(last)


def recurrent(make, steps):
    """A regression on sequences of so many vectors of three, by the layer that ``make`` makes."""
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((steps, 3)), make(), layers.Dense(1)])
