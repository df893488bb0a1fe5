"""What only XLA runs, or runs in another way, is still compiled where Python is called back.

Run it also with ``TF_ENABLE_ONEDNN_OPTS=0``: TensorFlow then has the kernels of a processor
without AVX-512.
"""

from __future__ import annotations

import logging

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import FORWARD, Record

_rng = np.random.default_rng(0)
IMAGES = tf.constant(_rng.normal(size=(2, 6, 6, 4)).astype("float32"))
VOLUMES = tf.constant(_rng.normal(size=(1, 4, 4, 4, 4)).astype("float32"))


def filters(*shape: int) -> tf.Variable:
    return tf.Variable(np.random.normal(size=shape).astype("float32"))


def gradients(function, given, weights):
    def compute():
        with tf.GradientTape() as tape:
            tape.watch(given)
            result = tf.reduce_sum(tf.square(function(given)))
        return tape.gradient(result, [given, weights])

    return compute


def grouped():
    weights = filters(3, 3, 2, 8)
    return gradients(lambda x: tf.nn.conv2d(x, weights, 1, "SAME"), IMAGES, weights)


def grouped_in_a_loop():
    weights = filters(3, 3, 2, 4)

    def twice(x):
        return tf.while_loop(
            lambda i, h: i < 2,
            lambda i, h: (i + 1, tf.nn.conv2d(h, weights, 1, "SAME") / 9.0),
            [0, x],
            maximum_iterations=2,
        )[1]

    return gradients(twice, IMAGES, weights)


def grouped_volumes():
    weights = filters(2, 2, 2, 2, 4)
    return gradients(lambda x: tf.nn.conv3d(x, weights, [1] * 5, "SAME"), VOLUMES, weights)


def dilated():
    weights = filters(3, 3, 4, 2)

    def convolve(x):
        return tf.raw_ops.Conv2D(
            input=x, filter=weights, strides=[1] * 4, padding="SAME", dilations=[1, 2, 2, 1]
        )

    return gradients(convolve, IMAGES, weights)


def channels_first():
    weights = filters(3, 3, 6, 8)

    def convolve(x):
        h = tf.nn.conv2d(x, weights, 1, "SAME", data_format="NCHW")
        return tf.nn.max_pool2d(h, 2, 2, "SAME", data_format="NCHW")

    return gradients(convolve, IMAGES, weights)


def depthwise_channels_first():
    weights = filters(3, 3, 6, 2)

    def convolve(x):
        return tf.raw_ops.DepthwiseConv2dNative(
            input=x, filter=weights, strides=[1] * 4, padding="SAME", data_format="NCHW"
        )

    return gradients(convolve, IMAGES, weights)


def random_numbers():
    seed = tf.Variable([1, 2])

    def draw():
        return [
            tf.random.stateless_uniform([3], seed),
            tf.random.stateless_normal([3], seed),
            tf.random.stateless_truncated_normal([3], seed),
            tf.random.stateless_uniform([3], seed, 0, 100, tf.int32),
        ]

    return draw


def out_of_range():
    large = tf.Variable(7)

    def compute():
        return [
            tf.gather(tf.range(5), large),
            tf.constant(7) // (large - 7),
            tf.debugging.check_numerics(1.0 / tf.cast(large - 7, tf.float32), "infinite"),
        ]

    return compute


def asserting():
    value = tf.Variable(1.0)

    def compute():
        with tf.control_dependencies([tf.debugging.Assert(value < 0.0, [value])]):
            return [value * 2.0]

    return compute


PROGRAMS = [
    grouped,
    grouped_in_a_loop,
    grouped_volumes,
    dilated,
    channels_first,
    depthwise_channels_first,
    random_numbers,
    out_of_range,
    asserting,
]


@pytest.fixture(scope="module", params=PROGRAMS)
def compiled(request):
    """A program that XLA compiles, and what it gives."""
    function = tf.function(request.param(), jit_compile=True)
    return function, function()


@pytest.mark.parametrize("where", FORWARD)
def test_a_compiled_function_gives_the_same_under_a_tool_that_looks(compiled, where):
    (function, wanted), tool = compiled, Record(at=where)
    with amanda.apply(tool):
        got = function()
    assert tool.ran
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("program", [grouped, channels_first, random_numbers, out_of_range])
def test_so_does_one_that_a_plain_function_calls(program):
    compiled = tf.function(program(), jit_compile=True)
    function = tf.function(lambda: compiled())
    wanted = function()
    with amanda.apply(Record()):
        got = function()
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_a_session_keeps_compiled_what_needs_it():
    weights = np.random.normal(size=(3, 3, 2, 8)).astype("float32")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        images = tf.constant(IMAGES.numpy())

        @tf.function(jit_compile=True)
        def convolve(x):
            return tf.nn.conv2d(x, weights, 1, "SAME")

        gradient = tf.gradients(tf.square(convolve(images)), images)[0]
        wanted = session.run(gradient)
        with amanda.apply(Record()):
            got = session.run(gradient)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_leaving_xla_is_noted_once_with_what_it_does_to_random_numbers(caplog):
    function = tf.function(lambda x: tf.sin(x), jit_compile=True)
    with caplog.at_level(logging.WARNING, "amanda_tensorflow"):
        for _ in range(3):
            with amanda.apply(Record(), Record(at="insert_after_op")):
                function(tf.ones([2]))
        with amanda.apply(Record(at="insert_after_op")):
            function(tf.ones([2]))
    (note,) = [record.getMessage() for record in caplog.records]
    assert "without XLA" in note
    assert "random" in note
