"""PyTorch casts operands of several data types to one before it computes.

They are seen in the type that it computes in. Where that is not one of theirs, or where a tool
could give back what their own type has no room for, the operator keeps PyTorch's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda import ValueUnavailableError

from amanda_contextmap.layout import Promoted
from amanda_contextmap.torch.conditions import in_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda_contextmap.layout import Layout
    from amanda_contextmap.native import Native

_KINDS = ("bool", "int", "float", "complex")


def promoted(name: str, other: str) -> Callable[[Native], Layout | None]:
    """Return how one of two operands is seen; None where PyTorch computes in its own data type."""

    def layout(op: Native) -> Layout | None:
        if not op.places(name) or not op.places(other):
            return None
        own, common = op.dtype(name), _common(op, name, other)
        if in_place(op) and common != op.dtype("self"):
            raise ValueUnavailableError("the result is cast back")
        if own == common:
            return None
        if not _is_seen(op, name, common):
            raise ValueUnavailableError(f"PyTorch casts {own} to {common}")
        return Promoted(own, common)

    return layout


def both(first: str, second: str) -> dict[str, Callable[[Native], Layout | None]]:
    """Return the layouts of two operands, by role: ``both("A=self", "B=other")``."""
    (role, name), (other_role, other) = first.split("="), second.split("=")
    return {role: promoted(name, other), other_role: promoted(other, name)}


def of_integers(op: Native) -> bool:
    """Tell whether PyTorch computes in integers or booleans."""
    names = [name for name in ("self", "other") if op.places(name)]
    return all(_kind(op.dtype(name)) < _KINDS.index("float") for name in names)


def _common(op: Native, name: str, other: str) -> str:
    """Return two operands' data type: that of the higher kind, else of the one that has axes."""
    dtypes = op.dtype(name), op.dtype(other)
    kinds = [_kind(dtype) for dtype in dtypes]
    numbers = [op.rank(operand) == 0 for operand in (name, other)]
    if dtypes[0] == dtypes[1]:
        return dtypes[0]
    if kinds[0] != kinds[1]:
        return dtypes[kinds.index(max(kinds))]
    if numbers[0] != numbers[1]:
        return dtypes[numbers.index(False)]
    if all(dtype.startswith("int") for dtype in dtypes):
        return max(dtypes, key=_bits)
    raise ValueUnavailableError(f"PyTorch has {' with '.join(dtypes)} in a type of its own")


def _is_seen(op: Native, name: str, common: str) -> bool:
    """Tell whether an operand is cast to just that, and a tool can give it back."""
    own = op.dtype(name)
    if common in ("float16", "bfloat16"):  # with which a number is taken in higher precision
        return op.rank(name) > 0 and _kind(own) < _KINDS.index("float")
    return _kind(own) < _KINDS.index("float") or (own, common) == ("float64", "float32")


def _kind(dtype: str) -> int:
    return next((i for i, kind in enumerate(_KINDS) if kind in dtype), -1)


def _bits(dtype: str) -> int:
    return int(dtype.removeprefix("int"))
