"""This checks whether what a routine returned fits in place of a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

# Types of tensors that hold no values, as numbers, which are compared ten times as fast.
_NO_VALUES = (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum)


def incompatible_reason(original: Any, substitute: Any) -> str | None:
    """Tell why ``substitute`` cannot stand for ``original``; None if it can."""
    if original is None:
        return "there is no gradient here that could be replaced"
    if not isinstance(substitute, (tf.Tensor, tf.Variable, np.ndarray, np.generic)):
        return f"returned {type(substitute).__name__} {substitute!r}, which is no tensor"
    expected, given = tf.as_dtype(original.dtype).base_dtype, tf.as_dtype(substitute.dtype)
    if not is_replaceable(expected):
        return f"a tensor of type {expected.name} cannot be replaced"
    if given.base_dtype != expected:
        return f"returned a tensor of {given.base_dtype.name}, the operator takes {expected.name}"
    return None


def incompatible_shape(expected: Any, substitute: Any) -> str | None:
    """Tell why the shape of ``substitute`` does not fit; None if it does.

    Args:
        expected: the TensorShape for which the nodes that take it were made.
        substitute: a tensor or array.
    """
    given = tf.TensorShape(substitute.shape)
    if expected.is_compatible_with(given):
        return None
    return f"returned a tensor of shape {given}, it has to be of shape {expected}"


def as_tensor(substitute: Any) -> Any:
    """Return a variable or array as a tensor, which is what routines are given."""
    return substitute if isinstance(substitute, tf.Tensor) else tf.convert_to_tensor(substitute)


def is_replaceable(dtype: Any) -> bool:
    """Tell whether tensors of a type may be replaced: they hold values, not references."""
    return dtype.as_datatype_enum not in _NO_VALUES and not dtype._is_ref_dtype
