"""Two tensors are some distance apart, and some of that is rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

_EPSILONS = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
_ROUNDINGS = 8  # of the coarsest type, by which two ways to compute may differ
LEAST_ROUNDING = 1e-5  # the least that is allowed


def rounding(*dtypes: str) -> float:
    """Return the relative difference that rounding may make between tensors of these types."""
    return max(LEAST_ROUNDING, *(_ROUNDINGS * _EPSILONS.get(dtype, 0.0) for dtype in dtypes))


def check_tolerance(rtol: float | None) -> None:
    """Raise ValueError for a relative difference that cannot be allowed; None stands for none."""
    if rtol is not None and not 0 <= rtol < float("inf"):
        raise ValueError(f"rtol is {rtol}, and has to be 0 or more")


def distance(one: Any, other: Any) -> tuple[float, float]:
    """Return the largest difference, and the norm of all by that of the first tensor.

    Both are infinite between tensors of different shapes.
    """
    if one.shape != other.shape:
        return np.inf, np.inf
    kind = np.complex128 if "c" in (one.dtype.kind, other.dtype.kind) else np.float64
    one, other = one.astype(kind), other.astype(kind)
    alike = (one == other) | (np.isnan(one) & np.isnan(other))
    if not alike.size or alike.all():
        return 0.0, 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(alike, 0, one - other)
        if not np.isfinite(apart).all():
            return np.inf, np.inf
        norm = float(np.linalg.norm(np.where(np.isfinite(one), one, 0)))
        gap = float(np.linalg.norm(apart))
    return float(np.abs(apart).max()), gap / norm if norm else np.inf


def is_over(relative: float, allowed: float) -> bool:
    """Tell whether tensors whose bytes differ do so by more than is allowed."""
    return relative > allowed or allowed == 0


def bytes_equal(one: Any, other: Any) -> bool:
    """Tell whether two tensors are of one type and shape, and the same to the bit."""
    alike = one.shape == other.shape and one.dtype == other.dtype
    return bool(alike and one.tobytes() == other.tobytes())
