"""Operators are called by their scope and type, and by a number from the second one on."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from amanda import Operator
from amanda.driving import ByOperator, Ids, numbered

if TYPE_CHECKING:
    import torch
    from amanda import Source


class Numbering:
    """These are the ids of all operators that live.

    Attributes:
        models: the model that each operator is in, of those that are in one.
    """

    def __init__(self) -> None:
        self.operators = Ids()
        # The backward operators of each forward operator, by type and by count of that type.
        self.backward_operators: ByOperator[dict[tuple[str, int], Operator]] = ByOperator()
        self.models: ByOperator[weakref.ref[torch.nn.Module]] = ByOperator()
        # The mark that was given last to what would have an id, where to look for a free one.
        self._marks: dict[str, int] = {}

    def model(self, operator: Operator) -> torch.nn.Module | None:
        """Return the model that an operator is in."""
        model = self.models.get(operator.serial)
        return None if model is None else model()

    def free_mark(self, number: str, mark: int) -> int:
        """Return a mark that no living operator of this number has, if possible the given one."""
        if mark and marked(number, mark) not in self.operators:
            return mark
        mark = self._marks.get(number, 1)
        if marked(number, mark) not in self.operators:
            mark = 1  # its model is gone, and lower marks are free again
        while True:
            mark += 1
            if marked(number, mark) not in self.operators:
                self._marks[number] = mark
                return mark

    def backward_operator(self, operator: Operator, type: str, count: int) -> Operator:
        """Return an operator's backward operator of a type, ``count`` for a further one."""
        known = self.backward_operators.get(operator.serial)
        if known is None:
            known = {}
            self.backward_operators.keep(operator, known)
        if (type, count) not in known:
            name = numbered(type, count)
            known[type, count] = Operator(
                id=f"{operator.id}/{name}",
                type=type,
                name=name,
                scope=operator.scope,
                backend="torch",
                opt_in=operator.opt_in,
                locate=operator.locate,
            )
        return known[type, count]


class Root:
    """A root is a model as a whole, or all code outside of modules: it numbers operators within.

    So what a model's operators are called does not depend on what else there is, but for those
    whose id a living operator already has: a mark behind the number tells them from it.
    """

    def __init__(self, numbering: Numbering, module: torch.nn.Module | None = None) -> None:
        self.module = None if module is None else weakref.ref(module)
        self._numbering = numbering
        self._ids = Ids()
        self._mark = 0

    def add(
        self,
        scope: str,
        type: str,
        source: Source | None,
        opt_in: bool = False,
        is_module: bool = False,
    ) -> Operator:
        """Add a new operator, with the first id that no living one has."""
        taken = self._numbering.operators
        prefix = f"{scope}/" if scope else ""
        own = id = self._ids.free(prefix + type, taken=taken if self.module is None else ())
        if id in taken:
            number = own if own != prefix + type else f"{own}#1"
            self._mark = self._numbering.free_mark(number, self._mark)
            id = marked(number, self._mark)
        name = id[len(prefix) :]
        operator = Operator(
            id=id,
            type=type,
            name=name,
            scope=scope,
            backend="torch",
            opt_in=opt_in,
            is_module=is_module,
            locate=lambda: source,
        )
        self._ids.give(own, operator)
        taken.give(id, operator)
        if self.module is not None:
            self._numbering.models.keep(operator, self.module)
        return operator


def marked(number: str, mark: int) -> str:
    """Return the id of an operator beside another one of that number."""
    return f"{number}@{mark}"
