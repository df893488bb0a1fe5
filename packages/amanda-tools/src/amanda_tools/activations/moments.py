"""Mean and variance of numbers that come in parts are computed without keeping the numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from amanda_tools.activations.captured import Array

_AT_ONCE = 1 << 20  # elements that are cast to double precision together


class Moments:
    """Moments are statistics of numbers, merged without loss of precision (Chan et al., 1979).

    Attributes:
        executions: how many arrays there were.
    """

    def __init__(self) -> None:
        self.executions = 0
        self._elements = self._zeros = self._count = 0
        self._mean = self._squares = 0.0  # of the finite ones; the latter around the mean
        self._least, self._most = math.inf, -math.inf

    def add(self, array: Array) -> None:
        """Take in an array."""
        self.executions += 1
        flat = array.reshape(-1)
        for start in range(0, flat.size, _AT_ONCE):
            self._add(flat[start : start + _AT_ONCE].astype(np.float64))

    def numbers(self) -> dict[str, Any]:
        """Return the statistics by their names; None for those of no elements."""
        any_ = self._count > 0
        return {
            "executions": self.executions,
            "elements": self._elements,
            "mean": self._mean if any_ else None,
            "std": math.sqrt(self._squares / self._count) if any_ else None,
            "least": self._least if any_ else None,
            "most": self._most if any_ else None,
            "zeros": self._zeros / self._elements if self._elements else 0.0,
            "not_finite": self._elements - self._count,
        }

    def _add(self, values: Array) -> None:
        self._elements += values.size
        self._zeros += values.size - int(np.count_nonzero(values))
        known = np.isfinite(values)
        finite = values if known.all() else values[known]
        if not finite.size:
            return
        mean = float(finite.mean())
        squares = float(np.square(finite - mean).sum())
        apart, count = mean - self._mean, self._count + finite.size
        self._squares += squares + apart**2 * self._count * finite.size / count
        self._mean += apart * finite.size / count
        self._count = count
        self._least = min(self._least, float(finite.min()))
        self._most = max(self._most, float(finite.max()))
