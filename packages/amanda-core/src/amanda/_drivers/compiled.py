"""Compiled code is compared here with its operators, run one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from amanda._operators.operator import Operator


class Held(NamedTuple):
    """This tells how one run of compiled code compares with its operators, run one by one.

    Attributes:
        operator: the first operator whose result differs; the last one of all if none does.
        operators: how many there are.
        differs: whether one does.
        direction: ``forward``, or ``backward`` where what differs are gradients.
        dtype: of the tensors that were compared last.
        expected: such a tensor as its operators give it one by one, as a NumPy array.
        found: the same as the compiled code gives it.
    """

    operator: Operator
    operators: int
    differs: bool
    direction: str
    dtype: str
    expected: Any
    found: Any


Alike = Callable[[Any, Any, str], bool]
"""Whether an array is the one that is expected, given that, itself, and its type of data."""
