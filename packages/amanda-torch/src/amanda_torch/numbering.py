"""What operators are called: the scope and type, and a number for a second one of them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from amanda import Operator

if TYPE_CHECKING:
    import torch

operators: weakref.WeakValueDictionary[str, Operator] = weakref.WeakValueDictionary()
# The mark that was given last to what would have an id, where to go on looking for a free one.
_marks: dict[str, int] = {}


class Root:
    """A model as a whole, or all code outside of modules: within it operators are numbered.

    So what a model's operators are called does not depend on what else there is, but for those
    whose id a living operator already has: a mark behind the number tells them from it.
    """

    __slots__ = ("__weakref__", "_counts", "_mark", "_operators", "module")

    def __init__(self, module: torch.nn.Module | None = None) -> None:
        self.module = None if module is None else weakref.ref(module)
        self._operators: weakref.WeakValueDictionary[str, Operator] = weakref.WeakValueDictionary()
        # The number that was given last for a scope and type, where to look for a free one.
        self._counts: dict[tuple[str, str], int] = {}
        self._mark = 0

    def add(self, scope: str, type: str, opt_in: bool) -> Operator:
        """A new operator, with the first id that no living one has."""
        prefix = f"{scope}/" if scope else ""
        count = self._counts.get((scope, type), 0)
        if prefix + _numbered(type, count) not in self._operators:
            count = 0  # what had it is gone, and lower numbers are free again
        name = own = ""
        while not name or own in self._operators or (self.module is None and own in operators):
            count += 1
            name = _numbered(type, count)
            own = prefix + name
        self._counts[scope, type] = count
        id = own
        if id in operators:
            self._mark = _free_mark(prefix, type, count, self._mark)
            name = _marked(type, count, self._mark)
            id = prefix + name
        operator = Operator(
            id=id, type=type, name=name, scope=scope, backend="torch", opt_in=opt_in
        )
        self._operators[own] = operators[id] = operator
        return operator


def _free_mark(prefix: str, type: str, count: int, mark: int) -> int:
    """A mark that no living operator of this number has, if possible the one that is given."""
    if mark and prefix + _marked(type, count, mark) not in operators:
        return mark
    own = prefix + _numbered(type, count)
    mark = _marks.get(own, 1)
    if prefix + _marked(type, count, mark) not in operators:
        mark = 1  # its model is gone, and lower marks are free again
    while True:
        mark += 1
        if prefix + _marked(type, count, mark) not in operators:
            _marks[own] = mark
            return mark


def _marked(type: str, count: int, mark: int) -> str:
    return f"{type}#{count}@{mark}"


def _numbered(type: str, count: int) -> str:
    return type if count == 1 else f"{type}#{count}"
