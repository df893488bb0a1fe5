"""These are statistics of the times of one operator."""

from __future__ import annotations

import threading
from array import array
from statistics import median

_BATCH = 1000  # times that are added up at once
_LATEST = 10_000  # times of which the median is kept

_lock = threading.RLock()  # a signal may come while results are read, and read them too


class Times:
    """This keeps how long the executions of an operator took, in nanoseconds.

    :meth:`add` is called between operators of the program, and has to cost next to nothing: times
    are added up many at a time.
    """

    def __init__(self) -> None:
        self._count = 0
        self._total = 0
        self._least: int | None = None
        self._most: int | None = None
        self._latest = array("q")
        self._new = array("q")

    def add(self, time: int) -> None:
        """Add one more time."""
        self._new.append(time)
        if len(self._new) >= _BATCH:
            self._add_up()

    def _add_up(self) -> Times:
        """Add new times to the sums, and return these. Other threads may add some meanwhile."""
        with _lock:
            new = self._new[:]
            del self._new[: len(new)]
            if new:
                known = [time for time in (self._least, self._most) if time is not None]
                self._least, self._most = min([*known, *new]), max([*known, *new])
                self._count += len(new)
                self._total += sum(new)
                self._latest += new
                del self._latest[:-_LATEST]
        return self

    @property
    def count(self) -> int:
        """Count the times."""
        return self._add_up()._count

    @property
    def total(self) -> int:
        """Return the sum of all times."""
        return self._add_up()._total

    @property
    def least(self) -> int | None:
        """Return the shortest time; None if there are none."""
        return self._add_up()._least

    @property
    def most(self) -> int | None:
        """Return the longest time; None if there are none."""
        return self._add_up()._most

    @property
    def mean(self) -> float | None:
        """Return the mean; None if there are none."""
        return self.total / self.count if self.count else None

    @property
    def median(self) -> float | None:
        """Return the median of the latest 10,000; None if there are none."""
        self._add_up()
        return median(self._latest) if self._latest else None
