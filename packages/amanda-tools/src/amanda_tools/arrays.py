"""These functions work on arrays of any library, given its array namespace."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def like(x: Any, other: Any, xp: Any) -> Any:
    """Return an array in the data type of another."""
    return x if x.dtype == other.dtype else xp.astype(x, other.dtype)


def extent(x: Any, axes: tuple[int, ...] | None, xp: Any) -> tuple[Any, Any]:
    """Return the least and the largest element, of the whole or along some axes, which are kept."""
    if axes is None:
        return xp.min(x), xp.max(x)
    return xp.min(x, axis=axes, keepdims=True), xp.max(x, axis=axes, keepdims=True)


def all_but(axis: int | None, rank: int) -> tuple[int, ...] | None:
    """Return all axes but one; None, which stands for all, where there is none to leave out."""
    if axis is None:
        return None
    return tuple(other for other in range(rank) if other != axis % rank)


def widened(x: Any, dtype: str, xp: Any) -> Any:
    """Return an array in a type wide enough to compute in: single precision for half.

    Args:
        x: an array of floating-point numbers.
        dtype: its type, as :meth:`amanda.OpContext.describe` has it.
        xp: its namespace.
    """
    return x if dtype in ("float32", "float64") else xp.astype(x, xp.float32)


def size_of(x: Any) -> int:
    """Count the elements of an array."""
    return math.prod(int(length) for length in x.shape)


def summed_like(x: Any, other: Any, xp: Any) -> Any:
    """Sum an array over all axes that another array lacks, or has one index of."""
    if len(other.shape) == 0:
        return xp.sum(x)
    others = tuple(axis for axis, length in enumerate(other.shape) if length == 1)
    return xp.sum(x, axis=others, keepdims=True)


def returned(value: Any, by: str) -> np.ndarray[Any, Any]:
    """Turn what a program returns into an array of NumPy.

    Args:
        value: that.
        by: what the program is called.

    Raises:
        TypeError: NumPy does not take it.
    """
    why = f"it is of type {type(value).__name__}"
    try:
        array = np.asarray(value)
        if array.dtype != object:
            return array
    except (RuntimeError, TypeError, ValueError) as error:
        why = str(error)
    raise TypeError(f"{by} returns what NumPy does not take as one array: {why}")
