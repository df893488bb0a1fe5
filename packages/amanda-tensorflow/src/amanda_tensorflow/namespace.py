"""The functions of TensorFlow are offered under the names of the Python array API.

It is TensorFlow's NumPy namespace, with what that lacks or what does not work there on tensors
that are not NumPy-like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Sequence

_numpy = tf.experimental.numpy

acos = tf.math.acos
acosh = tf.math.acosh
asin = tf.math.asin
asinh = tf.math.asinh
atan = tf.math.atan
atan2 = tf.math.atan2
atanh = tf.math.atanh
bitwise_invert = tf.bitwise.invert
bitwise_left_shift = tf.bitwise.left_shift
bitwise_right_shift = tf.bitwise.right_shift
matrix_transpose = tf.linalg.matrix_transpose
permute_dims = tf.transpose
pow = _numpy.power
round = tf.math.round
bool = tf.bool


def __getattr__(name: str) -> Any:
    return getattr(_numpy, name)


def astype(x: Any, dtype: Any) -> tf.Tensor:
    """Return the array with another data type."""
    return tf.cast(x, dtype)


def clip(x: Any, /, min: Any = None, max: Any = None) -> tf.Tensor:
    """Return the array with what is beyond a bound put to it; None for no bound.

    Bounds that are numbers need none of the shapes and data types that TensorFlow's NumPy works
    out, which are eight operators more in a graph.
    """
    if isinstance(min, (int, float)) and isinstance(max, (int, float)):
        x = tf.convert_to_tensor(x)
        if x.dtype.is_floating:
            return tf.clip_by_value(x, min, max)
    return _numpy.clip(x, min, max)


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> tf.Tensor:
    """Join arrays one after the other along an axis, flattened for None."""
    if axis is None:
        arrays, axis = [tf.reshape(array, (-1,)) for array in arrays], 0
    return tf.concat(arrays, axis)


def cumulative_prod(x: Any, /, *, axis: int = 0) -> tf.Tensor:
    """Return the products of the elements up to each one along an axis."""
    return tf.math.cumprod(x, axis)


def cumulative_sum(x: Any, /, *, axis: int = 0) -> tf.Tensor:
    """Return the sums of the elements up to each one along an axis."""
    return tf.math.cumsum(x, axis)


def moveaxis(x: Any, source: Any, destination: Any, /) -> tf.Tensor:
    """Return the array with some of its axes in other places."""
    x = tf.convert_to_tensor(x)
    if x.shape.rank is None:
        return _numpy.moveaxis(x, source, destination)
    numbered = numpy.empty(range(x.shape.rank))  # each axis has its number for a size
    return tf.transpose(x, numpy.moveaxis(numbered, source, destination).shape)


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left") -> tf.Tensor:
    """Find where elements would be inserted into a sorted array."""
    return tf.searchsorted(x1, x2, side)


def trunc(x: Any, /) -> tf.Tensor:
    """Round to the nearest integer towards zero."""
    return tf.where(tf.less(x, 0), tf.math.ceil(x), tf.math.floor(x))


def unstack(x: Any, /, *, axis: int = 0) -> tuple[tf.Tensor, ...]:
    """Return the parts along an axis, which goes away."""
    return tuple(tf.unstack(x, axis=axis))


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> tf.Tensor:
    """Return the sums of products along an axis."""
    return tf.reduce_sum(x1 * x2, axis)
