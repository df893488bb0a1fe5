"""Where in the program's code an operator is called, or a node of a graph was made."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import NamedTuple

_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
# What Python calls the text that a person types or gives to it; all other such names are code that
# was made by a program.
_TYPED = ("<stdin>", "<string>", "<ipython-input", "<python-input")


class Source(NamedTuple):
    """A line of the program; ``file`` as Python knows it, ``line`` counted from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def calling_source(modules: Iterable[str]) -> Source | None:
    """The line of the program that led to where this is called; None if none of it did.

    Args:
        modules: names of the packages and modules of the framework and the driver, whose lines
            are not the program's, as those of Amanda and Python are not.
    """
    frame = sys._getframe(1)
    places = places_of(modules)
    while not is_program(frame.f_code.co_filename, places):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return Source(frame.f_code.co_filename, frame.f_lineno)


def places_of(modules: Iterable[str]) -> tuple[str, ...]:
    """Directories of packages, and files of modules, that are imported; and those of Amanda."""
    found = (sys.modules.get(name) for name in ("amanda", *modules))
    files = ((getattr(module, "__file__", None), hasattr(module, "__path__")) for module in found)
    return tuple(
        os.path.dirname(file) + os.sep if is_package else file for file, is_package in files if file
    )


def is_program(file: str, places: tuple[str, ...]) -> bool:
    """Whether a file is the program's: it is not in these places, and not Python's."""
    if file.startswith("<"):
        return file.startswith(_TYPED)
    if file.startswith(_STANDARD_LIBRARY) and not any(part in file for part in _INSTALLED):
        return False
    return not file.startswith(places)
