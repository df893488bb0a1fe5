"""Some Einstein sums are products of matrices; these rules tell which.

``abc,cde->abde`` with a parameter of shape (c, d, e) is a linear layer: a product of any batch with
the matrix (d * e, c), whose result has its last axis taken apart. ``aecd,abcd->aceb`` is a product
of batches of matrices, (a, c) of them, whose axes lie in another order.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from amanda import ValueUnavailableError

from amanda_contextmap.layout import Chain, Merged, Permute, Reshaped
from amanda_contextmap.rule import rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amanda_contextmap.layout import Layout
    from amanda_contextmap.native import Native
    from amanda_contextmap.rule import Rule


def einstein_sum(operands: str, gemm: Mapping[str, Any], ignores: str = "") -> tuple[Rule, ...]:
    """Return the rules of an operator that computes Einstein sums.

    Args:
        operands: the name of its list of operands.
        gemm: the attributes of a linear layer.
        ignores: names of its arguments that change nothing in what is computed.
    """
    roles = f"A={operands}[0] B={operands}[1]"
    return (
        rule(
            "Gemm",
            roles,
            outputs="Y",
            layouts={
                "A": lambda op: LinearLayer(op, operands).data(),
                "B": lambda op: LinearLayer(op, operands).weight(),
                "Y": lambda op: LinearLayer(op, operands).result(),
            },
            ignores=ignores,
            **gemm,
        ),
        rule(
            "MatMul",
            roles,
            outputs="Y",
            layouts={
                "A": lambda op: BatchedProduct(op, operands).first(),
                "B": lambda op: BatchedProduct(op, operands).second(),
                "Y": lambda op: BatchedProduct(op, operands).result(),
            },
            ignores=ignores,
        ),
        rule("Einsum", f"Inputs={operands}", equation="equation", ignores=ignores),
    )


class _Sum:
    """This is an Einstein sum of two operands, each of whose axes has a letter of its own.

    Raises:
        ValueUnavailableError: it is another kind of sum.
    """

    def __init__(self, op: Native, operands: str) -> None:
        equation = str(op.value("equation")).replace(" ", "")
        terms, arrow, self.output = equation.partition("->")
        self.left, comma, self.right = terms.partition(",")
        letters = self.left, self.right, self.output
        if not (arrow and comma and "".join(letters).isalpha()) or len(op.places(operands)) != 2:
            raise self.is_no("sum of two operands")
        if any(len(set(term)) < len(term) for term in letters):
            raise self.is_no("sum without diagonals")
        self.summed = [axis for axis in self.left if axis in self.right and axis not in self.output]
        left, right = op.shape(operands), op.shape(operands, 1)
        if len(left) != len(self.left) or len(right) != len(self.right):
            raise self.is_no("sum of these operands")
        for axis in self.summed:  # PyTorch takes an axis of size one for one of any size
            sizes = left[self.left.index(axis)], right[self.right.index(axis)]
            if None not in sizes and len(set(sizes)) > 1:
                raise self.is_no("sum over axes of one size")

    def is_no(self, kind: str) -> ValueUnavailableError:
        """Return the error that it is not the kind of sum that a rule is about."""
        return ValueUnavailableError(f"{self.left},{self.right}->{self.output} is no {kind}")


class LinearLayer(_Sum):
    """This is a sum over axes that both operands have last, in which the second is a parameter.

    Args:
        op: the operator.
        operands: the name of its list of operands.

    Raises:
        ValueUnavailableError: it is another kind of sum, or sizes of the parameter are not known.
    """

    def __init__(self, op: Native, operands: str) -> None:
        super().__init__(op, operands)
        kept = [axis for axis in self.left if axis not in self.right]
        outputs = [axis for axis in self.right if axis not in self.left]
        if (
            not (self.summed and outputs and op.is_parameter(f"{operands}[1]"))
            or [*kept, *self.summed] != list(self.left)
            or [*kept, *outputs] != list(self.output)
        ):
            raise self.is_no("linear layer")
        sizes = dict(zip(self.right, op.sizes(f"{operands}[1]"), strict=True))
        self._order = [*outputs, *self.summed]
        self._summed = [sizes[axis] for axis in self.summed]
        self._outputs = [sizes[axis] for axis in outputs]

    def data(self) -> Layout | None:
        """Return the layout that has the axes that are summed over as one."""
        return Merged(self._summed) if len(self._summed) > 1 else None

    def weight(self) -> Layout:
        """Return the layout that has the parameter as (out, in)."""
        matrix = math.prod(self._outputs), math.prod(self._summed)
        shape = (*self._outputs, *self._summed)
        return Chain(_permuted(self.right, self._order), Reshaped(shape, matrix))

    def result(self) -> Layout | None:
        """Return the layout that has the axes that the parameter gives as one."""
        return Merged(self._outputs) if len(self._outputs) > 1 else None


class BatchedProduct(_Sum):
    """This is a sum over one axis, which leaves one axis of each operand and those of both.

    Args:
        op: the operator.
        operands: the name of its list of operands.

    Raises:
        ValueUnavailableError: it is another kind of sum.
    """

    def __init__(self, op: Native, operands: str) -> None:
        super().__init__(op, operands)
        self._batch = [axis for axis in self.output if axis in self.left and axis in self.right]
        self._rows = [axis for axis in self.left if axis not in self.right]
        self._columns = [axis for axis in self.right if axis not in self.left]
        if not len(self._rows) == len(self._columns) == len(self.summed) == 1 or {
            *self._batch,
            *self._rows,
            *self._columns,
        } != set(self.output):
            raise self.is_no("product of batches of matrices")

    def first(self) -> Layout | None:
        """Return the layout of the first operand with its rows and what is summed over last."""
        return _moved(self.left, [*self._batch, *self._rows, *self.summed])

    def second(self) -> Layout | None:
        """Return the layout of the second operand with what is summed over and its columns last."""
        return _moved(self.right, [*self._batch, *self.summed, *self._columns])

    def result(self) -> Layout | None:
        """Return the layout of the result with its rows and columns last."""
        return _moved(self.output, [*self._batch, *self._rows, *self._columns])


def _moved(axes: str, order: list[str]) -> Layout | None:
    """Return the layout that has axes in another order; None where it is the same."""
    return None if list(axes) == order else _permuted(axes, order)


def _permuted(axes: str, order: list[str]) -> Layout:
    return Permute(tuple(map(axes.index, order)), tuple(range(len(order))))
