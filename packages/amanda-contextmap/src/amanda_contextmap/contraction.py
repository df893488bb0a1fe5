"""Which Einstein sums are linear layers: products with a matrix of parameters, of any batch.

``abc,cde->abde`` with a parameter of shape (c, d, e) is a product with the matrix (d * e, c), whose
result has its last axis taken apart.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from amanda import ValueUnavailableError

from amanda_contextmap.layout import Chain, Merged, Permute, Reshaped

if TYPE_CHECKING:
    from amanda.driving import Layout

    from amanda_contextmap.native import Native


class Contraction:
    """A sum over axes that both operands have, in which the second is a parameter.

    Args:
        op: the operator.
        operands: the name of its list of operands.

    Raises:
        ValueUnavailableError: it is another kind of sum, or sizes of the parameter are not known.
    """

    def __init__(self, op: Native, operands: str) -> None:
        equation = str(op.value("equation")).replace(" ", "")
        terms, arrow, result = equation.partition("->")
        data, comma, weight = terms.partition(",")
        if not (arrow and comma and (data + weight + result).isalpha()):
            raise ValueUnavailableError(f"{equation} is not of two operands")
        summed = [axis for axis in data if axis in weight]
        kept, outputs = data[: -len(summed) or None], [a for a in weight if a not in summed]
        if (
            not (summed and outputs and op.is_parameter(f"{operands}[1]"))
            or [*kept, *summed] != list(data)
            or [*kept, *outputs] != list(result)
            or any(len(set(term)) < len(term) for term in (data, weight, result))
        ):
            raise ValueUnavailableError(f"{equation} is no linear layer")
        sizes = dict(zip(weight, op.sizes(f"{operands}[1]"), strict=True))
        self._weight = weight
        self._order = [*outputs, *summed]
        self._summed = [sizes[axis] for axis in summed]
        self._outputs = [sizes[axis] for axis in outputs]

    def data(self) -> Layout | None:
        """The axes that are summed over as one."""
        return Merged(self._summed) if len(self._summed) > 1 else None

    def weight(self) -> Layout:
        """The parameter as (out, in)."""
        order = tuple(self._weight.index(axis) for axis in self._order)
        moved = Permute(order, tuple(range(len(order))))
        matrix = math.prod(self._outputs), math.prod(self._summed)
        return Chain(moved, Reshaped((*self._outputs, *self._summed), matrix))

    def result(self) -> Layout | None:
        """The axes that the parameter gives as one."""
        return Merged(self._outputs) if len(self._outputs) > 1 else None
