"""Where operators are in a program tells them apart: their lines, their places, their ids."""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Container, Hashable, Iterable
from types import CodeType, FrameType
from weakref import WeakKeyDictionary

from amanda._drivers.discovery import modules_of_drivers
from amanda._operators.operator import Operator, Source

_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
# What Python calls the text that a person types or gives to it; all other such names are code that
# was made by a program.
_TYPED = ("<stdin>", "<string>", "<ipython-input", "<python-input")


def calling_source(modules: Iterable[str]) -> Source | None:
    """Find the line of the program that led to where this is called; None if none of it did.

    Args:
        modules: names of the packages and modules of the framework and the driver, whose lines
            are not the program's, as those of Amanda and Python are not.
    """
    places = places_of(modules)
    frame = _frames_to_program(sys._getframe(1), places)[-1]
    file = frame.f_code.co_filename
    return Source(file, frame.f_lineno) if is_program(file, places) else None


def places_of(modules: Iterable[str]) -> tuple[str, ...]:
    """List directories of packages and files of modules that are imported, and Amanda's.

    Those of all drivers are Amanda's: a library that runs on several frameworks is called through
    what the driver of another one wraps around it.
    """
    found = (sys.modules.get(name) for name in ("amanda", *modules_of_drivers(), *modules))
    files = ((getattr(module, "__file__", None), hasattr(module, "__path__")) for module in found)
    return tuple(
        os.path.dirname(file) + os.sep if is_package else file for file, is_package in files if file
    )


@functools.cache
def is_program(file: str, places: tuple[str, ...]) -> bool:
    """Tell whether a file is the program's: it is not in these places, and not Python's."""
    if file.startswith("<"):
        return file.startswith(_TYPED)
    if file.startswith(_STANDARD_LIBRARY) and not any(part in file for part in _INSTALLED):
        return False
    return not file.startswith(places)


def calling_instructions(modules: Iterable[str]) -> tuple[tuple[CodeType, int], ...]:
    """List the instructions that led from the program to where this is called, as codes and
    offsets.

    The program's own is the last one, at the line that :func:`calling_source` tells.
    """
    frames = _frames_to_program(sys._getframe(1), places_of(modules))
    return tuple((frame.f_code, frame.f_lasti) for frame in frames)


def _frames_to_program(frame: FrameType, places: tuple[str, ...]) -> list[FrameType]:
    """List the frames that lead from the program's own, which is last, to one; all if none is."""
    found = [frame]
    while frame.f_back is not None and not is_program(frame.f_code.co_filename, places):
        frame = frame.f_back
        found.append(frame)
    return found


class Ids:
    """Ids tell living operators apart by numbers: ``a/add``, ``a/add#2``, ``a/add#3``.

    A number is free again when the operator that had it is gone.
    """

    def __init__(self) -> None:
        self._holders: dict[str, weakref.ref[Operator]] = {}
        self._lowest: dict[str, int] = {}  # by stem, below which no number is free; else 1

    def __contains__(self, id: object) -> bool:
        return id in self._holders

    def free(self, stem: str, first: int = 1, taken: Container[str] = ()) -> str:
        """Return the id for a scope and type, as its first is called, that has the lowest free
        number.

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
    """Return the id of the operator that is that one of its scope and type."""
    return stem if number == 1 else f"{stem}#{number}"


def _parts(id: str) -> tuple[str, int]:
    """Return what :func:`numbered` made an id of."""
    stem, _, number = id.rpartition("#")
    return (stem, int(number)) if number.isdecimal() and stem else (id, 1)


class Operators:
    """Operators are told apart by where in the program they are called, and kept as they are met.

    Args:
        backend: that of the driver.
        modules: see :func:`calling_source`.
    """

    def __init__(self, backend: str, modules: Iterable[str]) -> None:
        self._backend = backend
        self._modules = tuple(modules)
        self._ids = Ids()
        self._at: WeakKeyDictionary[object, dict[Hashable, Operator]] = WeakKeyDictionary()
        self._backward: WeakKeyDictionary[Operator, Operator] = WeakKeyDictionary()
        self._turns: WeakKeyDictionary[object, dict[Hashable, int]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def at(self, part: object | None, scope: str, type: str, run: object = None) -> Operator:
        """Return the operator that is being called, which is made when it is first met.

        Args:
            part: the model, or part of one, as long as which it lives; None for what is in none,
                which lives as long as this.
            scope: the path of the module or name scope that it is in.
            type: its type.
            run: stands for the run of the model that is going on, and lives as long as that. A
                place that is passed several times in one run has an operator for each time; for
                None it has one.
        """
        part = self if part is None else part
        place = calling_instructions(self._modules)
        with self._lock:
            key = scope, type, place, self._turn((id(part), scope, type, place), run)
            known = self._at.setdefault(part, {})
            if key not in known:
                known[key] = self._new(scope, type, calling_source(self._modules))
            return known[key]

    def backward(self, operator: Operator, suffix: str) -> Operator:
        """Return the one backward operator of an operator, whose type has ``suffix`` behind it."""
        with self._lock:
            if operator not in self._backward:
                self._backward[operator] = self._new(
                    operator.scope, operator.type + suffix, operator.source
                )
            return self._backward[operator]

    def _turn(self, place: Hashable, run: object) -> int:
        """Count how often a place was passed before in a run."""
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
