"""The operators of a driver whose framework calls them from the code of a model."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import TYPE_CHECKING

from amanda._operator import Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import CodeType, FrameType


class Operators:
    """The operators met so far, told apart by their places.

    Args:
        backend: that of the driver.
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._at: weakref.WeakKeyDictionary[object, dict[Hashable, Operator]]
        self._at = weakref.WeakKeyDictionary()
        self._backward: weakref.WeakKeyDictionary[Operator, Operator]
        self._backward = weakref.WeakKeyDictionary()
        self._by_id: weakref.WeakValueDictionary[str, Operator] = weakref.WeakValueDictionary()
        self._turns: weakref.WeakKeyDictionary[object, dict[Hashable, int]]
        self._turns = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def at(
        self, part: object | None, scope: str, type: str, place: Hashable, run: object = None
    ) -> Operator:
        """The operator at a place, made when it is first met.

        Args:
            part: the model, or part of one, as long as which it lives; None for what is in none,
                which lives as long as this.
            scope: the path of the module or name scope that it is in.
            type: its type.
            place: where in the program it is called.
            run: stands for the run of the model that is going on, and lives as long as that. A
                place that is passed several times in one run has an operator for each time; for
                None it has one.
        """
        part = self if part is None else part
        with self._lock:
            key = scope, type, place, self._turn((id(part), scope, type, place), run)
            known = self._at.setdefault(part, {})
            if key not in known:
                known[key] = self._new(scope, type)
            return known[key]

    def backward(self, operator: Operator, suffix: str) -> Operator:
        """The one backward operator of an operator, whose type has ``suffix`` behind it."""
        with self._lock:
            if operator not in self._backward:
                self._backward[operator] = self._new(operator.scope, operator.type + suffix)
            return self._backward[operator]

    def _turn(self, place: Hashable, run: object) -> int:
        """How often a place was passed before in a run."""
        if run is None:
            return 0
        passed = self._turns.setdefault(run, {})
        passed[place] = passed.get(place, -1) + 1
        return passed[place]

    def _new(self, scope: str, type: str) -> Operator:
        """An operator with an id that no other living operator has."""
        first = id = f"{scope}/{type}" if scope else type
        count = 1
        while id in self._by_id:
            count += 1
            id = f"{first}#{count}"
        operator = Operator(id=id, type=type, name=id, scope=scope, backend=self._backend)
        self._by_id[id] = operator
        return operator


def calling_instructions(passed: Callable[[str], bool]) -> tuple[tuple[CodeType, int], ...]:
    """The instructions that led from the program to where this is called, as codes and offsets.

    The program's own is the last one: that of the first caller in none of the files between.

    Args:
        passed: says whether a file is one of those between: the framework's or the driver's.
    """
    frame: FrameType = sys._getframe(1)
    found = [(frame.f_code, frame.f_lasti)]
    while passed(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
        found.append((frame.f_code, frame.f_lasti))
    return tuple(found)
