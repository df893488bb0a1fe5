"""Plain tables show rows that tools found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from amanda_tools.notice import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table_of(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Make a table with a line for each row; numbers stand at the right, and None is left out."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    rows = list(rows)
    for index, title in enumerate(titles):
        numbers = all(isinstance(row[index], (int, float, type(None))) for row in rows)
        table.add_column(title, overflow="fold", justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*(Text(cell_text(cell)) for cell in row))
    return table


def shape_text(shape: Iterable[int | None], between: str = ", ") -> str:
    """Write the sizes of a tensor, with a question mark for one that is not one number."""
    return between.join("?" if size is None else str(size) for size in shape)


def cell_text(cell: object) -> str:
    """Write a value as a table shows it: nothing for None, and four digits of a fraction."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:,.0f}" if 1000 <= abs(cell) < 1e15 else f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) else printable(str(cell))
