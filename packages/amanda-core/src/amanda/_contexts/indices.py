"""Tensors of an operator are chosen by index or by name; what is given is checked here."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from amanda._errors import ActionError

# Which tensors a routine is given: by index or by name, all of them by default.
Indices: TypeAlias = Iterable[int | str] | None


def checked_indices(
    indices: Indices, count: int | None, names: Sequence[str], what: str
) -> tuple[int, ...] | None:
    """Check the index list of an insertion, and return it without negative indices; None for all.

    There are ``count`` tensors to choose from, None while that is not known, by their ``names`` too
    if they have any. Messages say ``what`` the list is called.

    Raises:
        ActionError: an index is no integer, out of range, or given twice; a name is not known.
    """
    if indices is None:
        return None
    if isinstance(indices, str) or not hasattr(indices, "__iter__"):
        raise ActionError(f"{what} is a list of indices; write {what}=[{indices!r}]")
    chosen = [checked_index(index, count, names, what) for index in indices]
    for index in chosen:
        if chosen.count(index) > 1:
            raise ActionError(f"{what}={index} is given twice")
    return tuple(chosen)


def checked_index(given: int | str, count: int | None, names: Sequence[str], what: str) -> int:
    """Check an index, or a name out of ``names``, as :func:`checked_indices` does."""
    said, index = f"{what}={given!r}", given
    if isinstance(index, str):
        if not names:
            when = "" if count is not None else " before it runs, unless require_outputs=True"
            raise ActionError(f"{said} has to be an index, there are no names{when}")
        if index not in names:
            raise ActionError(f"{said} is none of {list(names)}")
        index = names.index(index)
    try:
        index = operator.index(index)
    except TypeError:
        raise ActionError(f"{said} is not an integer") from None
    if count is None:
        return index
    if not -count <= index < count:
        raise ActionError(f"{said} is out of range, there are {count}")
    return index % count
