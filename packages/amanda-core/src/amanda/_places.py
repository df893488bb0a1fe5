"""What operators are called, and which is which where the code of a model calls them."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Container, Hashable
from types import CodeType, FrameType
from weakref import WeakKeyDictionary

from amanda._operator import Operator
from amanda._source import Source


class Ids:
    """The ids of living operators, told apart by numbers: ``a/add``, ``a/add#2``, ``a/add#3``.

    A number is free again when the operator that had it is gone.
    """

    def __init__(self) -> None:
        self._holders: dict[str, weakref.ref[Operator]] = {}
        self._lowest: dict[str, int] = {}  # by stem, below which no number is free; else 1

    def __contains__(self, id: object) -> bool:
        return id in self._holders

    def __len__(self) -> int:
        return len(self._holders)

    def free(self, stem: str, first: int = 1, taken: Container[str] = ()) -> str:
        """The id for a scope and type, as its first is called, that has the lowest free number.

        It has a number from ``first`` on, and is none of those that others have ``taken``.
        """
        number = max(first, self._lowest.get(stem, 1))
        while (id := numbered(stem, number)) in self._holders or id in taken:
            number += 1
        return id

    def give(self, id: str, operator: Operator) -> None:
        """Have an operator hold an id for as long as it lives."""
        stem, number = _parts(id)
        holders, lowest = self._holders, self._lowest

        def free(gone: weakref.ref[Operator]) -> None:
            if holders.get(id) is gone:
                del holders[id]
                if (least := min(number, lowest.pop(stem, 1))) > 1:
                    lowest[stem] = least

        holders[id] = weakref.ref(operator, free)
        if number == lowest.get(stem, 1):
            lowest[stem] = number + 1


def numbered(stem: str, number: int) -> str:
    """The id of the operator that is that one of its scope and type."""
    return stem if number == 1 else f"{stem}#{number}"


def _parts(id: str) -> tuple[str, int]:
    """What :func:`numbered` made an id of."""
    stem, _, number = id.rpartition("#")
    return (stem, int(number)) if number.isdecimal() and stem else (id, 1)


class Operators:
    """The operators met so far, told apart by their places.

    Args:
        backend: that of the driver.
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._ids = Ids()
        self._at: WeakKeyDictionary[object, dict[Hashable, Operator]] = WeakKeyDictionary()
        self._backward: WeakKeyDictionary[Operator, Operator] = WeakKeyDictionary()
        self._turns: WeakKeyDictionary[object, dict[Hashable, int]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def at(
        self,
        part: object | None,
        scope: str,
        type: str,
        place: Hashable,
        run: object = None,
        source: Callable[[], Source | None] = lambda: None,
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
            source: tells the line of the program that calls it, and is asked when it is new.
        """
        part = self if part is None else part
        with self._lock:
            key = scope, type, place, self._turn((id(part), scope, type, place), run)
            known = self._at.setdefault(part, {})
            if key not in known:
                known[key] = self._new(scope, type, source())
            return known[key]

    def backward(self, operator: Operator, suffix: str) -> Operator:
        """The one backward operator of an operator, whose type has ``suffix`` behind it."""
        with self._lock:
            if operator not in self._backward:
                self._backward[operator] = self._new(
                    operator.scope, operator.type + suffix, operator.source
                )
            return self._backward[operator]

    def _turn(self, place: Hashable, run: object) -> int:
        """How often a place was passed before in a run."""
        if run is None:
            return 0
        passed = self._turns.setdefault(run, {})
        passed[place] = passed.get(place, -1) + 1
        return passed[place]

    def _new(self, scope: str, type: str, source: Source | None) -> Operator:
        id = self._ids.free(f"{scope}/{type}" if scope else type)
        operator = Operator(
            id=id, type=type, name=id, scope=scope, backend=self._backend, locate=lambda: source
        )
        self._ids.give(id, operator)
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
