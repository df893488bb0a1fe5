"""Numbers about the times of one operator."""

from __future__ import annotations

from collections import deque
from statistics import median

_LATEST = 10_000  # times of which the median is kept


class Times:
    """How long the executions of an operator took, in nanoseconds.

    Attributes:
        count: how many there were.
        total: all of them together.
        least, most: the shortest and the longest; None if there are none.
    """

    __slots__ = ("_latest", "count", "least", "most", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.least: int | None = None
        self.most: int | None = None
        self._latest: deque[int] = deque(maxlen=_LATEST)

    def add(self, time: int) -> None:
        """Take one more."""
        self.least = time if self.least is None else min(self.least, time)
        self.most = time if self.most is None else max(self.most, time)
        self.count += 1
        self.total += time
        self._latest.append(time)

    @property
    def mean(self) -> float | None:
        """Their mean; None if there are none."""
        return self.total / self.count if self.count else None

    @property
    def median(self) -> float | None:
        """The median of the latest 10,000; None if there are none."""
        return median(self._latest) if self._latest else None
