"""Installed packages announce tables of formulas, to which a user can add.

A package announces a :class:`Table` by an entry point in the group ``amanda.flops`` whose name is
the vocabulary of the table's operators. What several packages announce for one is put together.
"""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING

import amanda
from amanda.driving import entry_points_of

from amanda_tools.flops.table import Table
from amanda_tools.notice import described

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from importlib.metadata import EntryPoint

    from amanda_tools.flops.table import Formula, Forward


@functools.cache
def tables() -> dict[str, Table]:
    """Return the tables by vocabulary, loaded when this is first asked.

    A table that cannot be loaded, and a formula for what has one already, are left out with a
    warning; the formulas of this package come first, then those of others by their names.
    """
    found: dict[str, Table] = {}
    announced = {(entry.name, entry.value): entry for entry in entry_points_of("amanda.flops")}
    for entry in sorted(announced.values(), key=_rank):
        try:
            table = entry.load()
            if not isinstance(table, Table):
                raise TypeError(f"{entry.value} is {type(table).__name__}, not a Table")
        except Exception as error:
            _warn(f"{_announced(entry)} cannot be loaded: {described(error)}")
            continue
        taken = found.setdefault(entry.name, Table()).add(table)
        if taken:
            _warn(f"{_announced(entry)} gives formulas that there are already: {', '.join(taken)}")
    return found


def _rank(entry: EntryPoint) -> tuple[bool, str, str]:
    package = _package(entry)
    return package != "amanda-tools", package, entry.value


def _package(entry: EntryPoint) -> str:
    return "an unknown package" if entry.dist is None else entry.dist.name


def _announced(entry: EntryPoint) -> str:
    return f"FLOP table {entry.value} of {_package(entry)}"


def _warn(message: str) -> None:
    warnings.warn(f"left out: {message}", amanda.AmandaWarning, stacklevel=2)


def formula(
    *types: str, operands: Collection[int] = (), vocabulary: str = "torch"
) -> Callable[[Forward], Formula]:
    """Decorate a formula for some operator types; it takes the place of an earlier one.

    Tools that are made afterwards use it.

    Args:
        *types: operator types, e.g. ``mylib::project``.
        operands: the inputs that it multiplies, if the operator is a contraction. Its FLOPs are
            then two for each multiply-add, and the gradient of each operand takes as many again
            unless the formula's ``gradient`` says otherwise.
        vocabulary: the one that the types are of.

    Example::

        @formula("mylib::gelu")
        def gelu(inputs, outputs, attrs):
            return 8 * prod(outputs[0])

        @gelu.gradient
        def gelu_gradient(inputs, outputs, attrs, flows):
            return 11 * prod(outputs[0]) * flows[0]
    """
    return tables().setdefault(vocabulary, Table()).formula(*types, operands=operands)
