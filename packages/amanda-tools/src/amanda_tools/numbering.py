"""Objects get numbers, by which they are told apart without being kept."""

from __future__ import annotations

import itertools
import weakref
from typing import Any


class Numbering:
    """A numbering has a number for each object, which it does not share with one that is gone."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}

    def of(self, thing: Any) -> int:
        """Return the number of an object that can be referred to weakly."""
        known = self._known.get(id(thing))
        if known is None or known[0]() is not thing:
            known = self._known[id(thing)] = weakref.ref(thing), next(self._numbers)
        return known[1]
