"""The tool ``Operators`` lists what there is in a model, as the author of a tool needs it first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import amanda

from amanda_tools.formats import Saving
from amanda_tools.listing import Listing
from amanda_tools.place import Place

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from typing import Any


@dataclass
class OperatorRow:
    """This is one operator.

    Attributes:
        id, type, scope: the operator.
        purpose: what it is there for: ``model``, ``optimizer``, ``data`` or ``initialization``.
        inputs: the names of the tensors that it is given.
        input_shapes, input_dtypes, output_shapes, output_dtypes: of its tensors when it first ran;
            a size, or a shape as a whole, that a graph does not know yet is None.
    """

    id: str
    type: str
    scope: str
    purpose: str
    inputs: list[str]
    input_shapes: list[list[int | None] | None]
    input_dtypes: list[str | None]
    output_shapes: list[list[int | None] | None]
    output_dtypes: list[str | None]


class Operators(Saving[OperatorRow], amanda.Tool):
    """Lists operators with ids, types, scopes and shapes, in the order in which they first ran.

    Args:
        out: a file to write when the scope is left, as JSON or CSV by its ending.

    Raises:
        OSError: it cannot be written there.
        ValueError: its name ends in something else.
    """

    row_type = OperatorRow

    def __init__(self, out: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self.save_to(out)
        self._rows: dict[Place, OperatorRow] = {}
        self.add_inst_for_op(self._meet, opt_in=True)
        self.add_inst_for_op(self._complete, opt_in=True, require_outputs=True)

    def rows(self) -> list[OperatorRow]:
        """Return the operators."""
        return list(self._rows.values())

    def found(self) -> str:
        """Tell how many operators there are, and of how many types."""
        types = {row.type for row in self._rows.values()}
        return f"{len(self._rows):,} operators of {len(types):,} types"

    def report(self) -> Listing:
        """Show the list of operators."""
        return Listing(self.rows())

    def _meet(self, ctx: amanda.OpContext) -> None:
        """Add an operator before it first runs, so that the list has that order."""
        place = Place.at(ctx)
        if place in self._rows or (ctx.op.opt_in and place.purpose == "model"):
            return  # what is hidden in a model is no operator of its own
        shapes, dtypes = _described(ctx, ctx.inputs)
        self._rows[place] = OperatorRow(*place[:4], list(ctx.input_names), shapes, dtypes, [], [])

    def _complete(self, ctx: amanda.OpContext) -> None:
        row = self._rows.get(Place.at(ctx))
        if row is not None:
            row.output_shapes, row.output_dtypes = _described(ctx, ctx.outputs)


def _described(
    ctx: amanda.OpContext, tensors: Sequence[Any]
) -> tuple[list[list[int | None] | None], list[str | None]]:
    given = [None if tensor is None else ctx.describe(tensor) for tensor in tensors]
    return (
        [None if info is None or info.shape is None else list(info.shape) for info in given],
        [None if info is None else info.dtype for info in given],
    )
