"""Pruning tools find a row for each layer."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from amanda_tools.charts import bars
from amanda_tools.findings import field_names
from amanda_tools.formats import Saving
from amanda_tools.notice import printable
from amanda_tools.pictures import Pictured

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amanda_tools.charts import Chart


@dataclass
class PrunedLayer:
    """This is a parameter some of whose elements are masked to zero.

    Attributes:
        id: the first operator that was given it.
        scope: the module or name scope of that.
        type: its ONNX type.
        shape: the parameter's, as ONNX has it.
        elements: how many there are.
        zeros: how many of them are pruned.
        sparsity: the share of them.
    """

    id: str
    scope: str
    type: str
    shape: list[int]
    elements: int
    zeros: int
    sparsity: float


@dataclass
class PrunedValues:
    """This is an operator some of whose values are masked to zero, others at each execution.

    Attributes:
        id: the operator.
        scope: its module or name scope.
        type: its ONNX type.
        elements: how many values there were in all executions.
        zeros: how many of them were pruned, or zero anyway.
        sparsity: the share of them.
    """

    id: str
    scope: str
    type: str
    elements: int
    zeros: int
    sparsity: float


_Row = TypeVar("_Row", PrunedLayer, PrunedValues)


class Sparsity(Pictured[_Row], Saving[_Row]):
    """This is a base of tools that prune, which shows what they found as a table, and in all."""

    rows_name = "layers"
    units = MappingProxyType({"sparsity": "share"})

    def totals(self) -> Mapping[str, Any]:
        """Return the numbers of all layers together."""
        rows = self.rows()
        elements, zeros = sum(row.elements for row in rows), sum(row.zeros for row in rows)
        return {"elements": elements, "zeros": zeros, "sparsity": share(zeros, elements)}

    def found(self) -> str:
        """Tell the numbers of layers and elements."""
        total = self.totals()
        return (
            f"{len(self.rows())} layers, {total['zeros']:,} of {total['elements']:,} elements "
            f"pruned ({total['sparsity']:.1%})"
        )

    def charts(self) -> list[Chart]:
        """Draw how much of each layer is zero."""
        return [bars("Share that is zero", {"zero": {row.id: row.sparsity for row in self.rows()}})]

    def report(self) -> Table | str:
        """Show a table of the layers."""
        rows = self.rows()
        if not rows:
            return f"{type(self).__name__}: no operator ran that it prunes"
        table = Table(box=SIMPLE_HEAD, pad_edge=False, caption=self.found(), caption_justify="left")
        for name in field_names(self.row_type):
            is_number = isinstance(getattr(rows[0], name), (int, float))
            justify: Literal["left", "right"] = "right" if is_number else "left"
            table.add_column(name.capitalize(), overflow="fold", justify=justify)
        for row in rows:
            cells = [
                f"{value:.1%}" if isinstance(value, float) else printable(str(value))
                for value in vars(row).values()
            ]
            table.add_row(*map(Text, cells))
        return table


def share(part: int, whole: int) -> float:
    """Return a part as a share of a whole, which may be nothing."""
    return part / whole if whole else 0.0
