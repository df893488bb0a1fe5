"""Values that are pruned may be other ones in each execution."""

from __future__ import annotations

import abc
from math import isnan
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import amanda

from amanda_tools.pruning.layers import PrunedValues, Sparsity, share

if TYPE_CHECKING:
    import os


class ValuePruning(Sparsity[PrunedValues], amanda.Tool):
    """This is a base of tools that mask values to zero which operators compute.

    Args:
        count: count them. That takes routines on the host, which costs time in a graph.
        out: a file to write when the scope is left, a row for each operator, as JSON or CSV, or
            a picture (.svg), by its ending; then
            what is pruned is counted.

    Raises:
        OSError: it cannot be written there.
        ValueError: the name of the file ends in something else.
    """

    row_type = PrunedValues
    rows_name = "operators"
    merges = MappingProxyType({"elements": "sum", "zeros": "sum", "sparsity": "mean"})
    lists_candidates = True

    def __init__(self, count: bool, out: str | os.PathLike[str] | None) -> None:
        super().__init__(namespace="onnx")
        self.save_to(out)
        self.pure = not (count or out is not None)
        self._rows: dict[str, PrunedValues] = {}

    def rows(self) -> list[PrunedValues]:
        """Return the operators, in the order in which they first ran."""
        return list(self._rows.values())

    def found(self) -> str:
        """Tell the numbers of operators and elements, as far as they are counted."""
        if self.pure:
            return f"{len(self._rows):,} operators, whose zeros count=True counts"
        return super().found()

    def row(self, ctx: amanda.OpContext) -> PrunedValues:
        """Return the row of the operator under analysis."""
        op = ctx.op
        return self._rows.setdefault(op.id, PrunedValues(op.id, op.scope, op.type, 0, 0, 0.0))

    def counted(self, values: Any, row: PrunedValues, numpy: Any) -> Any:
        """Return the values, and count their zeros where that is wanted."""
        if not self.pure:
            array = numpy(values)
            row.elements += array.size
            row.zeros += array.size - int((array != 0).sum())
            row.sparsity = share(row.zeros, row.elements)
        return values


class ZeroingValues(ValuePruning):
    """This is a base of tools that prune what an operator gives, and its gradient too."""

    @abc.abstractmethod
    def masked(self, tensor: Any, values: Any, xp: Any) -> Any:
        """Return a tensor with zeros where values are pruned: of these, or of their gradient."""

    def prune(self, ctx: amanda.OpContext, pure: bool = True) -> None:
        """Have what the operator under analysis gives pruned."""
        how = {"row": self.row(ctx), "xp": ctx.xp, "numpy": ctx.numpy}
        ctx.insert_after_op(self.pruned, outputs=[0], pure=pure and self.pure, **how)

    def prune_gradient(self, ctx: amanda.OpContext, pure: bool = True) -> None:
        """Have what is pruned of what the operator gives get no gradient."""
        ctx.insert_on_grad_outputs(self.masked, outputs=[0], with_outputs=[0], pure=pure, xp=ctx.xp)

    def pruned(self, values: Any, row: PrunedValues, xp: Any, numpy: Any) -> Any:
        """Return the values, with zeros for those that are pruned."""
        return self.counted(self.masked(values, values, xp), row, numpy)


def check_one(threshold: float | None, most: float | None, name: str) -> None:
    """Raise ValueError unless one of a threshold and another limit is given."""
    if (threshold is None) == (most is None):
        raise ValueError(f"give one of threshold and {name}")
    if threshold is not None and isnan(threshold):
        raise ValueError("threshold is no number")


def kept(values: Any, threshold: float | None, most: int | None, xp: Any) -> Any:
    """Mark the values to keep along the last axis: a threshold or more, or the largest ones.

    Of equal values that are the last to stay, all do. What is no number is kept as well: it is not
    smaller than anything, and zero in its place would hide it.

    Args:
        values: none of which is negative.
        threshold: what is kept is no smaller than this.
        most: without a threshold, how many are kept.
        xp: the array namespace.
    """
    no_number = values != values
    if threshold is None:
        assert most is not None
        numbers = xp.where(no_number, xp.zeros_like(values), values)
        threshold = xp.sort(numbers, axis=-1)[..., -most:][..., :1]
    # not "not (values < threshold)", of which a graph's optimizer makes what numbers alone allow
    return (values >= threshold) | no_number
