"""Operators of several functions may be one operator of a model.

A graph backend runs a model by several functions: one to train it, one to evaluate it. Each has
operators of its own, in scopes whose names may have a number behind them that tells them apart.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amanda_tools.quantization.tensors import Known


def copied(new: Known, known: Iterable[Known], frozen: bool) -> Known | None:
    """Return the tensor that a new one is in another function; None if there is not exactly one.

    It is given to an operator of the same type in the same role, with the same parameter if there
    is one, in a scope of the same name. After freeze() the parameter is enough. That is said only
    where nobody can tell which model an operator is in.
    """
    if new.place.model is not None:
        return None
    found = [
        other
        for other in known
        if (other.place.type, other.operand.name) == (new.place.type, new.operand.name)
        and other.parameter == new.parameter
    ]
    by_name = [other for other in found if _is_copy(new.place.modules, other.place.modules)]
    if not by_name and frozen and new.parameter is not None:
        by_name = found
    return by_name[0] if len(by_name) == 1 else None


def _is_copy(scope: tuple[str, ...], of: tuple[str, ...]) -> bool:
    """Tell whether the names of a scope are those of another with numbers, the first one too."""
    if len(scope) != len(of) or not scope or scope[0] == of[0]:
        return False
    return all(_plain(one) == _plain(other) for one, other in zip(scope, of, strict=True))


def _plain(name: str) -> str:
    return re.sub(r"(_\d+)+$", "", name)
