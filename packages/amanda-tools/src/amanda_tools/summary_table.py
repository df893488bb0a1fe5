"""The table of a summary shows modules as they nest, with what fits beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.jupyter import JupyterMixin
from rich.table import Table
from rich.text import Text

from amanda_tools.notice import printable
from amanda_tools.report import count, size
from amanda_tools.tables import shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

    from amanda_tools.summary import ModuleSummary

    _Cell = Callable[[ModuleSummary], str]

_LEAST = 16  # characters of a module's name that are worth more than a column


class SummaryTable(JupyterMixin):
    """Each module has a row; columns go from the last on where there is no room for all.

    Args:
        rows: each module ahead of those in it, the model as a whole first.
        totals: the numbers of all models together.
        exact: whether numbers are shown in whole.
    """

    def __init__(
        self, rows: Sequence[ModuleSummary], totals: Mapping[str, int], *, exact: bool
    ) -> None:
        self._rows = rows
        number = _exactly if exact else count
        in_bytes = _exactly if exact else size
        # in the order in which they may go, the last one first
        self._columns: dict[str, _Cell] = {
            "Output": lambda row: _shape(row.output_shape),
            "Params": lambda row: number(row.params) if row.params else "",
            "FLOPs": lambda row: number(row.flops) if row.flops else "",
            "Input": lambda row: _shape(row.input_shape),
            "Memory": lambda row: in_bytes(row.param_bytes + row.output_bytes),
        }
        fixed = totals["params"] - totals["trainable"]
        self._last = (
            f"parameters: {number(totals['params'])} ({number(totals['trainable'])} trainable, "
            f"{number(fixed)} not), {in_bytes(totals['param_bytes'])}; "
            f"FLOPs: {number(totals['flops'])}, multiply-adds: {number(totals['macs'])}; "
            f"outputs: {in_bytes(totals['output_bytes'])}"
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = list(self._columns)
        labels = max(len(_label(row)) for row in self._rows)
        while True:
            table = self._table(shown)
            width = console.measure(table, options=options.update(width=10_000)).maximum
            room = options.max_width - (width - labels)
            if room >= min(labels, _LEAST) or len(shown) == 1:
                break
            del shown[-1]
        if room < labels:
            table.columns[0].width = max(room, len("Module"))
        yield table
        yield Text(self._last)

    def _table(self, shown: Sequence[str]) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("Module", no_wrap=True, overflow="ellipsis")
        for title in ("Input", "Output", "Params", "FLOPs", "Memory"):
            if title in shown:
                is_shape = title in ("Input", "Output")
                table.add_column(title, no_wrap=True, justify="left" if is_shape else "right")
        for row in self._rows:
            cells = (self._columns[c.header](row) for c in table.columns[1:])  # type: ignore[index]
            table.add_row(Text(_label(row), style="" if row.depth else "bold"), *map(Text, cells))
        return table


def _label(row: ModuleSummary) -> str:
    """Return a module's name and class, ``self_attention: SelfAttention``, indented as it nests."""
    name = row.path.rpartition(".")[2]
    if not row.depth:
        return printable(row.type if row.model == "model" else row.model)
    named = row.type if name in ("", row.type) else f"{name}: {row.type}"
    return "  " * row.depth + printable(named)


def _exactly(number: float) -> str:
    return f"{number:,.0f}"


def _shape(shape: Sequence[int | None] | None) -> str:
    return "" if shape is None else f"[{shape_text(shape)}]"
