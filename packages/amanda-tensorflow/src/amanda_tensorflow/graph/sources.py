"""This finds the line of the program that made a node."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from amanda.driving import Source, is_program, places_of

if TYPE_CHECKING:
    from collections.abc import Callable

_PACKAGES = ("tensorflow", "keras", "tf_keras", "amanda_tensorflow")
# These make nodes from a GraphDef, which does not tell what line made them.
_IMPORTERS = tuple(
    os.path.join("framework", file) for file in ("importer.py", "function_def_to_graph.py")
)


class Locator:
    """A locator tells where a node was made, and remembers it.

    Args:
        find: gives the operation, while its graph is alive.
    """

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find: Callable[[], Any] | None = find
        self._found: Source | None = None

    def __call__(self) -> Source | None:
        """Return the line of the program; None where nobody can tell."""
        find = self._find
        if find is not None:
            self._found = _source_of(find())
            self._find = None
        return self._found


def _source_of(operation: Any) -> Source | None:
    """Find the nearest line of the program's among those that led to where a node was made."""
    places = places_of(_PACKAGES)
    for frame in reversed(getattr(operation, "traceback", None) or ()):
        if frame.filename.endswith(_IMPORTERS):
            return None
        if is_program(frame.filename, places):
            return Source(frame.filename, frame.lineno)
    return None
