"""Steps of a program are told from the executions of its operators alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amanda_tools.execution import Execution


@dataclass
class Step:
    """A step is a pass through the model, with its backward and what the optimizer does.

    Attributes:
        number: how many there were before it.
        start, end: in nanoseconds.
    """

    number: int
    start: int
    end: int


class Steps:
    """This tells the steps of executions that are added as they end.

    A step begins whenever the operator runs that was the first one to run in a module. What runs
    again within a backward operator, as in activation checkpointing, begins none.
    """

    def __init__(self) -> None:
        self._open: list[Step] = []  # the one that goes on, and the one before it, which may too
        self._begun = 0
        self._first: str | None = None  # the operator that begins a step

    def add(self, execution: Execution) -> list[Step]:
        """Take an execution, and return the steps that are known to have ended by now."""
        kind = execution.kind
        place = kind.forward
        if place.purpose in ("data", "initialization") or execution.depth:
            return []
        start, end = execution.start, execution.start + execution.duration
        if kind.direction == "backward":
            self._go_on_if_around(start)
        elif place.purpose == "model" and place.modules:
            self._first = self._first or place.id
            if place.id == self._first:
                self._begin(start, end)
        if self._open:
            self._open[-1].end = max(self._open[-1].end, end)
        ended, self._open = self._open[:-2], self._open[-2:]
        return ended

    def close(self) -> list[Step]:
        """End the steps that are open, and return them."""
        ended, self._open = self._open, []
        return ended

    def _begin(self, start: int, end: int) -> None:
        for before in self._open[-1:]:
            before.end = min(before.end, start)
        self._open.append(Step(self._begun, start, end))
        self._begun += 1

    def _go_on_if_around(self, start: int) -> None:
        """Merge steps that began since ``start``, when a backward operator did that has ended."""
        while len(self._open) > 1 and start < self._open[-1].start:
            inner = self._open.pop()
            self._open[-1].end = max(self._open[-1].end, inner.end)
            self._begun -= 1
