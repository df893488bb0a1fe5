"""A list of operators has a line for each where there is room, else its shapes below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.jupyter import JupyterMixin
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from amanda_tools.notice import printable
from amanda_tools.tables import shape_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

    from amanda_tools.operators import OperatorRow

# What stands apart below the model, and what it is called there.
_SECTIONS = {
    "model": "Operators",
    "optimizer": "Optimizer",
    "data": "Data loading",
    "initialization": "Initialization",
}


class Listing(JupyterMixin):
    """A listing shows operators with their types, scopes and shapes, those of a model first."""

    def __init__(self, rows: Sequence[OperatorRow]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sections: dict[str, list[OperatorRow]] = {title: [] for title in _SECTIONS.values()}
        for row in self._rows:
            title = _SECTIONS.get(row.purpose, row.purpose)  # a driver may know of others
            sections.setdefault(title, []).append(row)
        sections = {title: rows for title, rows in sections.items() if rows}
        tables = [_table(title, rows) for title, rows in sections.items()]
        wide = options.update(width=10_000)
        if all(console.measure(t, options=wide).maximum <= options.max_width for t in tables):
            yield from tables
            return
        for title, rows in sections.items():
            yield Text(f"\n{title}", style="bold")
            for row in rows:
                yield Text(printable(row.id), overflow="fold")
                shapes = Text(f"{printable(row.type)}  {_signature(row)}", "dim", overflow="fold")
                yield Padding.indent(shapes, 4)


def _table(title: str, rows: Sequence[OperatorRow]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in (title, "Type", "Scope", "Shapes"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        cells = (row.id, row.type, row.scope)
        table.add_row(*(Text(printable(cell)) for cell in cells), Text(_signature(row)))
    return table


def _signature(row: OperatorRow) -> str:
    """Write an operator's tensors as ``float32[2, 3], float32[4, 3] -> float32[2, 4]``."""
    inputs = ", ".join(map(_tensor, row.input_shapes, row.input_dtypes))
    outputs = ", ".join(map(_tensor, row.output_shapes, row.output_dtypes))
    return f"{inputs} -> {outputs}".strip()


def _tensor(shape: Sequence[int | None] | None, dtype: str | None) -> str:
    if dtype is None:
        return "none"
    if shape is None:
        return f"{dtype}[...]"
    return f"{dtype}[{shape_text(shape)}]"
