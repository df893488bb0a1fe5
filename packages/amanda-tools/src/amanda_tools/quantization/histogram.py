"""A tensor's values are counted over many executions, as a histogram in bounded memory."""

from __future__ import annotations

import math

import numpy as np

_HALF = 2048  # bins on each side of zero


class Histogram:
    """A histogram counts values in bins of one width on both sides of zero.

    Whenever a value lies beyond them, the bins are made so many times twice as wide that it does
    not; each new bin is the sum of two, so that no count is ever spread over others.

    Attributes:
        counts: how many values are in each bin, from the lowest on.
        width: of a bin; 0.0 as long as all values are zero.
        minimum, maximum: the least and the largest value.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(2 * _HALF, np.int64)
        self.width = 0.0
        self.minimum, self.maximum = math.inf, -math.inf

    def add(self, values: np.ndarray) -> None:
        """Count values, of which there is one at least.

        Raises:
            ValueError: some are infinite, or no numbers.
        """
        low, high = float(values.min()), float(values.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError("there are values that are infinite or no numbers")
        self.minimum, self.maximum = min(self.minimum, low), max(self.maximum, high)
        self._reach(max(-low, high))
        if self.width == 0.0:
            self.counts[_HALF] += values.size
            return
        bins = np.floor(values.ravel().astype(np.float64) / self.width).astype(np.int64)
        bins = np.clip(bins + _HALF, 0, 2 * _HALF - 1)  # the largest value is in the last bin
        self.counts += np.bincount(bins, minlength=2 * _HALF)

    @property
    def centers(self) -> np.ndarray:
        """Return the middles of the bins."""
        return (np.arange(-_HALF, _HALF) + 0.5) * self.width

    def quantile(self, share: float) -> float:
        """Return a value that a share of all values do not exceed, up to the width of a bin."""
        below = np.cumsum(self.counts)
        bin = int(np.searchsorted(below, share * below[-1]))
        upper = (bin + 1 - _HALF) * self.width
        return float(np.clip(upper, self.minimum, self.maximum))

    def _reach(self, largest: float) -> None:
        """Make the bins wide enough for a magnitude."""
        if largest == 0.0 or largest <= self.width * _HALF:
            return
        needed = 2.0 ** math.ceil(math.log2(largest / _HALF))
        needed = needed if needed * _HALF >= largest else 2 * needed
        if self.width == 0.0:
            self.width = needed
        while self.width < needed:
            self.width *= 2
            pairs = self.counts.reshape(-1, 2).sum(1)
            self.counts = np.zeros_like(self.counts)
            self.counts[_HALF // 2 : _HALF // 2 + _HALF] = pairs
