"""Ranges of activations are found out on data."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Literal

import numpy as np

from amanda_tools.quantization.formula import settings_for
from amanda_tools.quantization.histogram import Histogram

if TYPE_CHECKING:
    from amanda_tools.quantization.formula import Formula

Method = Literal["minmax", "moving", "percentile", "mse"]

_CANDIDATES = 100


class Observer:
    """An observer sees a tensor at each execution, and chooses a range for it.

    Args:
        method: how the range is chosen: ``minmax`` (all values are in it), ``moving`` (averages of
            the least and the largest value of each execution), ``percentile`` (all values but the
            outermost), ``mse`` (that of the least mean squared error).
        percentile: percent of the values that are in the range, half of the others on each side.
        averaging: how much the last execution counts in a moving average.

    Attributes:
        executions: how many it has seen.
    """

    def __init__(self, method: Method, percentile: float, averaging: float) -> None:
        self.executions = 0
        self._method = method
        self._tail = (1 - percentile / 100) / 2
        self._averaging = np.float32(averaging)
        self._average: tuple[np.float32, np.float32] | None = None
        self._histogram = Histogram()

    def add(self, values: np.ndarray) -> None:
        """Take note of the values of an execution; an empty tensor has none.

        Raises:
            ValueError: some are infinite, or no numbers.
        """
        if values.size == 0:
            return
        self.executions += 1
        self._histogram.add(values)
        now = np.float32(values.min()), np.float32(values.max())
        self._average = moved_average(self._average, now, self._averaging)

    def range_for(self, formula: Formula) -> tuple[float, float]:
        """Return the range that it chooses for a formula; it has seen an execution at least."""
        histogram = self._histogram
        if self._method == "moving":
            assert self._average is not None
            return float(self._average[0]), float(self._average[1])
        if self._method == "percentile":
            return histogram.quantile(self._tail), histogram.quantile(1 - self._tail)
        if self._method == "mse":
            return self._of_least_error(formula)
        return histogram.minimum, histogram.maximum

    def error(self, formula: Formula, settings: np.ndarray) -> float:
        """Return the relative error of rounding what it has seen: a root of a ratio of squares."""
        x = self._histogram.centers.astype(np.float32)
        return relative_error(x, formula.quantized(x, settings, np), self._histogram.counts)

    def _of_least_error(self, formula: Formula) -> tuple[float, float]:
        """Return the range with the least squared error, of those cut down evenly on both sides."""
        low, high = self._histogram.minimum, self._histogram.maximum
        shares = np.arange(1, _CANDIDATES + 1) / _CANDIDATES
        candidates = [(float(low * share), float(high * share)) for share in shares]

        def error(candidate: tuple[float, float]) -> float:
            return self.error(formula, settings_for(formula, *candidate))

        return min(reversed(candidates), key=error)


def check_choice(name: str, value: str, choices: object) -> None:
    """Raise ValueError for an option that is none of the choices of a ``Literal``."""
    if value not in typing.get_args(choices):
        known = ", ".join(typing.get_args(choices))
        raise ValueError(f"{name}={value}: it is one of {known}")


def check_share(name: str, value: float) -> None:
    """Raise ValueError for an option that is no share of a whole."""
    if not 0 < value <= 1:
        raise ValueError(f"{name}={value}: it is above 0, and 1 at most")


def moved_average(
    average: tuple[np.float32, np.float32] | None,
    now: tuple[np.float32, np.float32],
    share: np.float32,
) -> tuple[np.float32, np.float32]:
    """Return the average of a range's ends after another range; the first is its own average."""
    if average is None:
        return now
    low, high = (old + share * (new - old) for old, new in zip(average, now, strict=True))
    return low, high


def relative_error(x: np.ndarray, rounded: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Return the root of the sum of squared differences over that of squares; 0.0 for all zero."""
    scale = np.float64(1) if weights is None else weights.astype(np.float64)
    x64 = x.astype(np.float64)
    total = float((scale * x64**2).sum())
    return float(((scale * (x64 - rounded) ** 2).sum() / total) ** 0.5) if total else 0.0
