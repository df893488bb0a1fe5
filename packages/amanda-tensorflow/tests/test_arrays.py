"""Values of tensors as arrays, and which input of an operator flows through it."""

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Watch


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (tf.bfloat16, np.float32),
        (tf.float16, np.float16),
        (tf.float32, np.float32),
        (tf.int32, np.int32),
        (tf.bool, np.bool_),
    ],
)
def test_a_type_that_numpy_lacks_is_one_that_has_all_its_values(dtype, expected):
    arrays = []

    def analyze(ctx):
        ctx.insert_before_op(lambda t: arrays.append(ctx.numpy(t)), inputs=[0])

    @tf.function
    def run(x):
        return tf.reshape(x, [3])

    with amanda.apply(Watch(analyze, "Reshape")):
        run(tf.cast([[0, 1, 1]], dtype))
    assert arrays[0].dtype == expected
    assert arrays[0].tolist() == [np.array([0, 1, 1]).astype(expected).tolist()]


def test_a_number_is_an_array_without_axes():
    arrays = []

    def analyze(ctx):
        ctx.insert_before_op(lambda t: arrays.append(ctx.numpy(t)), inputs=[0])

    with amanda.apply(Watch(analyze, "Sqrt")):
        tf.function(tf.sqrt)(tf.constant(4.0))
    assert type(arrays[0]) is np.ndarray
    assert arrays[0].shape == ()


KERNEL = tf.Variable(tf.ones((1, 1, 3, 2)))
SCALE = tf.Variable(tf.ones(3))
IMAGE = tf.ones((2, 4, 4, 3))


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda x: tf.nn.conv2d(x, KERNEL, 1, "SAME"), {"Conv2D": 0}),
        (
            lambda x: tf.compat.v1.nn.fused_batch_norm(x, SCALE, SCALE)[0],
            {"FusedBatchNormV3": 0},
        ),
        (lambda x: tf.nn.bias_add(x, SCALE), {"BiasAdd": 0}),
        (lambda x: x * 2.0, {"Mul": 0}),
        (lambda x: x + tf.abs(x), {"AddV2": None}),
        (lambda x: tf.where(x > 0, x, SCALE), {"SelectV2": 1}),
        (lambda x: tf.reduce_sum(x, [1, 2]), {"Sum": 0}),
        (lambda x: tf.cast(x, tf.int32) + 1, {"AddV2": None}),
    ],
)
def test_what_flows_through_an_operator(run, expected):
    found = {}
    with amanda.apply(
        Watch(lambda ctx: found.setdefault(ctx.op.type, ctx.activation), list(expected))
    ):
        tf.function(run)(IMAGE)
    assert found == expected
