"""What a portable routine may say by ``ctx.xp``, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from amanda_tensorflow import driver

X = np.array([[0.5, -0.25, 2.5], [-1.5, 0.75, 1.5]], np.float32)
SMALL = X / 4
INTEGERS = np.array([[1, 2, 3], [4, 5, 6]])

CALLS = {
    "abs": lambda xp, a: xp.abs(a(X)),
    "acos": lambda xp, a: xp.acos(a(SMALL)),
    "acosh": lambda xp, a: xp.acosh(a(np.abs(X) + 1)),
    "asin": lambda xp, a: xp.asin(a(SMALL)),
    "asinh": lambda xp, a: xp.asinh(a(X)),
    "astype": lambda xp, a: xp.astype(a(X), xp.float64),
    "atan": lambda xp, a: xp.atan(a(X)),
    "atan2": lambda xp, a: xp.atan2(a(X), a(SMALL)),
    "atanh": lambda xp, a: xp.atanh(a(SMALL)),
    "bitwise_invert": lambda xp, a: xp.bitwise_invert(a(INTEGERS)),
    "bitwise_left_shift": lambda xp, a: xp.bitwise_left_shift(a(INTEGERS), a(INTEGERS)),
    "bitwise_right_shift": lambda xp, a: xp.bitwise_right_shift(a(INTEGERS), a(INTEGERS)),
    "clip": lambda xp, a: xp.clip(a(X), -0.5, 0.5),
    "clip between arrays": lambda xp, a: xp.clip(a(X), a(SMALL), a(SMALL + 1)),
    "clip of integers": lambda xp, a: xp.clip(a(INTEGERS), 2, 5),
    "clip on one side": lambda xp, a: xp.clip(a(X), -0.5, None),
    "concat": lambda xp, a: xp.concat([a(X), a(X)], axis=1),
    "concat flattened": lambda xp, a: xp.concat([a(X), a(X)], axis=None),
    "cumulative_prod": lambda xp, a: xp.cumulative_prod(a(X), axis=1),
    "cumulative_sum": lambda xp, a: xp.cumulative_sum(a(X), axis=1),
    "expand_dims": lambda xp, a: xp.expand_dims(a(X), axis=1),
    "matrix_transpose": lambda xp, a: xp.matrix_transpose(a(X)),
    "max": lambda xp, a: xp.max(a(X), axis=(0, 1), keepdims=True),
    "maximum": lambda xp, a: xp.maximum(a(X), 0.0),
    "mean": lambda xp, a: xp.mean(a(X), axis=0),
    "moveaxis": lambda xp, a: xp.moveaxis(a(X[None]), (-1, 0), (0, 1)),
    "moveaxis of one": lambda xp, a: xp.moveaxis(a(X[None]), -1, 1),
    "permute_dims": lambda xp, a: xp.permute_dims(a(X), (1, 0)),
    "pow": lambda xp, a: xp.pow(a(X), 2.0),
    "reshape": lambda xp, a: xp.reshape(a(X), (3, -1)),
    "round": lambda xp, a: xp.round(a(X)),
    "searchsorted": lambda xp, a: xp.searchsorted(a(INTEGERS[0]), a(INTEGERS[1])),
    "sign": lambda xp, a: xp.sign(a(X)),
    "squeeze": lambda xp, a: xp.squeeze(a(X[None]), axis=0),
    "trunc": lambda xp, a: xp.trunc(a(X)),
    "unstack": lambda xp, a: xp.unstack(a(X), axis=1)[2],
    "vecdot": lambda xp, a: xp.vecdot(a(X), a(X)),
    "where": lambda xp, a: xp.where(a(X) > 0, a(X), 0.0),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_it_computes_what_numpy_does(call):
    found, expected = call(driver.xp, tf.constant), call(np, np.asarray)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    if expected.dtype.kind == "f":
        assert found.dtype.as_numpy_dtype == expected.dtype


def test_a_clip_by_numbers_is_two_operators_of_the_type_that_is_given():
    graph = tf.function(lambda x: driver.xp.clip(x, 0, 0.5)).get_concrete_function(
        tf.TensorSpec((None, 3), tf.bfloat16)
    )
    assert graph.output_dtypes == tf.bfloat16
    types = [operation.type for operation in graph.graph.get_operations()]
    assert sorted(set(types) - {"Const", "Placeholder", "Identity"}) == ["Maximum", "Minimum"]


def test_axes_of_a_tensor_of_no_known_rank_are_moved():
    moved = tf.function(
        lambda x: driver.xp.moveaxis(x, -1, 0), input_signature=[tf.TensorSpec(None)]
    )
    np.testing.assert_array_equal(moved(X[None]), np.moveaxis(X[None], -1, 0))
