"""A table has formulas, which tell an operator's FLOPs from shapes and attributes alone.

There is one table for each vocabulary of operators (``torch``, ``tensorflow``, ...). A formula is
a small function::

    @formula("mylib::project", operands=(0, 1))
    def project(inputs, outputs, attrs):
        return 2 * prod(outputs[0]) * inputs[0][-1]

``inputs`` and ``outputs`` are shapes, in the order of the operator's schema with lists flattened,
so that an optional tensor that is absent moves up those behind it; ``attrs`` are the arguments
that are no tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import TypeAlias

    Shape: TypeAlias = tuple[int, ...]
    Shapes: TypeAlias = Sequence[Shape]
    Attrs: TypeAlias = Mapping[str, Any]
    Flows: TypeAlias = Sequence[bool]
    Forward: TypeAlias = Callable[[Shapes, Shapes, Attrs], int]
    Gradient: TypeAlias = Callable[[Shapes, Shapes, Attrs, Flows], int]


class Formula:
    """A formula counts the FLOPs of one kind of operator and of its gradient.

    Attributes:
        forward: called with the shapes of inputs and outputs, and the attributes.
        operands: the inputs that a contraction multiplies, empty for anything else. The FLOPs of
            a contraction come in pairs of a multiplication and an addition.
    """

    def __init__(self, forward: Forward, operands: Collection[int] = ()) -> None:
        self.forward = forward
        self.operands = operands
        self._gradient: Gradient | None = None

    def gradient(self, function: Gradient) -> Gradient:
        """Decorate the formula of the gradient.

        It is also given, for each input, whether a gradient flows to it. Without one, the
        gradient of each operand of a contraction is another contraction of the same size, and
        the gradient of anything else is not counted.
        """
        self._gradient = function
        return function

    def backward(self, inputs: Shapes, outputs: Shapes, attrs: Attrs, flows: Flows) -> int | None:
        """Count the FLOPs of the gradients that flow; None if nobody said how many."""
        if self._gradient is not None:
            return self._gradient(inputs, outputs, attrs, flows)
        if not self.operands:
            return None
        return self.forward(inputs, outputs, attrs) * sum(flows[i] for i in self.operands)


class Table:
    """A table has what is known about the operators of one vocabulary.

    Args:
        views: types that give other views of their inputs, separated by blanks: no FLOPs and no
            bytes.
        copies: types that only move data: no FLOPs.
        leaves: types that compute something, in which no contraction runs. These, and those that
            only move data, cost less if they are named: nobody looks inside of them.

    Attributes:
        formulas: by operator type.
    """

    def __init__(self, views: str = "", copies: str = "", leaves: str = "") -> None:
        self.formulas: dict[str, Formula] = {}
        self.views = frozenset(views.split())
        self.copies = frozenset(copies.split())
        self.leaves = frozenset(leaves.split())

    @property
    def closed(self) -> frozenset[str]:
        """Return the types inside of which nothing can be that has a formula.

        There are none if there is a formula for anything but contractions, which may be part of
        any other operator.
        """
        if not self.leaves or not all(formula.operands for formula in self.formulas.values()):
            return frozenset()
        return (self.views | self.copies | self.leaves) - self.formulas.keys()

    def formula(self, *types: str, operands: Collection[int] = ()) -> Callable[[Forward], Formula]:
        """Decorate the formula of some operator types; see :func:`formula`."""

        def register(forward: Forward) -> Formula:
            made = Formula(forward, operands)
            self.formulas.update(dict.fromkeys(types, made))
            return made

        return register

    def add(self, other: Table) -> list[str]:
        """Take what another table knows; return the types that were known here before, and stay."""
        taken = sorted(self.formulas.keys() & other.formulas.keys())
        self.formulas = {**other.formulas, **self.formulas}
        self.views |= other.views
        self.copies |= other.copies
        self.leaves |= other.leaves
        return taken
