"""A timeline tells when each execution was, in few bytes: a page has a hundred thousand of them."""

from __future__ import annotations

import threading
from array import array
from typing import TYPE_CHECKING, Any

import amanda

from amanda_tools.executions import Executions
from amanda_tools.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from amanda_tools.execution import Execution

MOST = 250_000  # executions that are kept; a page with more is slow to open


class Timeline:
    """The executions of one run, in lanes: one for each direction of each thread or process.

    Args:
        name: what it is of.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lanes: dict[tuple[str, Hashable], int] = {}
        self._kinds: dict[tuple[str, str, str], int] = {}
        self._lane, self._kind = array("l"), array("l")
        self._start, self._duration = array("q"), array("q")
        self._allocated = array("q")  # pairs of a time and bytes
        self._steps = Steps()
        self._ended: list[list[int]] = []
        self._left_out = 0

    def __len__(self) -> int:
        """Count the executions that are kept."""
        return len(self._start)

    def add(self, execution: Execution, track: Hashable = None) -> None:
        """Take one more execution, of a thread or process."""
        if len(self) == MOST:
            self._left_out += 1
            return
        place, forward = execution.place, execution.forward
        lanes, kinds = self._lanes, self._kinds
        self._lane.append(lanes.setdefault((execution.direction, track), len(lanes)))
        self._kind.append(kinds.setdefault((place.type, place.id, forward.id), len(kinds)))
        self._start.append(execution.start)
        self._duration.append(execution.duration)
        if execution.allocated is not None:
            self._allocated.extend((execution.start + execution.duration, execution.allocated))
        self._ended += ([step.start, step.end] for step in self._steps.add(execution))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; times are nanoseconds since the first start, starts since the last.

        A step has its start, its end, and how long it was in operators forward and backward; what
        was in both at once is backward.
        """
        self._ended += ([step.start, step.end] for step in self._steps.close())
        order = sorted(range(len(self)), key=self._start.__getitem__)
        origin = self._start[order[0]] if order else 0
        starts = [self._start[index] - origin for index in order]
        steps = [(start - origin, end - origin) for start, end in self._ended]
        return {
            "name": self.name,
            "lanes": _named(self._lanes),
            "kinds": [list(kind) for kind in self._kinds],
            "lane": [self._lane[index] for index in order],
            "kind": [self._kind[index] for index in order],
            "start": [b - a for a, b in zip([0, *starts], starts, strict=False)],
            "duration": [self._duration[index] for index in order],
            "steps": [
                [start, end, min(forward, end - start - backward), backward]
                for (start, end), forward, backward in zip(
                    steps,
                    self._sums("forward", steps, order, starts),
                    self._sums("backward", steps, order, starts),
                    strict=True,
                )
            ],
            "memory": [
                [time - origin, size]
                for time, size in zip(self._allocated[::2], self._allocated[1::2], strict=True)
            ],
            "left_out": self._left_out,
        }

    def _sums(
        self,
        direction: str,
        steps: Sequence[tuple[int, int]],
        order: Sequence[int],
        starts: Sequence[int],
    ) -> list[int]:
        """Tell how long each step was in operators of a direction; several at once count once."""
        chosen = [of == direction for of, _ in self._lanes]
        sums = [0] * len(steps)
        first = until = 0
        for index, start in zip(order, starts, strict=True):
            begin, end = max(start, until), start + self._duration[index]
            if not chosen[self._lane[index]] or end <= begin:
                continue
            until = end
            while first < len(steps) and steps[first][1] <= begin:
                first += 1
            for at in range(first, len(steps)):
                if steps[at][0] >= end:
                    break
                sums[at] += min(end, steps[at][1]) - max(begin, steps[at][0])
        return sums


def _named(lanes: dict[tuple[str, Hashable], int]) -> list[str]:
    """``forward``, and ``forward, 2`` for that of the second thread."""
    names: list[str] = []
    for direction, track in lanes:
        if isinstance(track, str):
            names.append(f"{direction}, {track}")
            continue
        number = 1 + sum(name.partition(",")[0] == direction for name in names)
        names.append(direction if number == 1 else f"{direction}, thread {number}")
    return names


class Recorder(amanda.Tool):
    """Keeps when each execution was, for the timeline of a report."""

    def __init__(self) -> None:
        super().__init__()
        self.timeline = Timeline("this run")
        self._lock = threading.Lock()
        self.depends_on(Executions)
        self.add_inst_for_op(self._analyze, opt_in=True)
        self.add_inst_for_op(self._analyze, backward=True, keep_forward=False)

    def _analyze(self, ctx: amanda.OpContext) -> None:
        self.dependency(Executions).observe(ctx, self._record)

    def _record(self, execution: Execution) -> None:
        with self._lock:
            self.timeline.add(execution, threading.get_ident())
