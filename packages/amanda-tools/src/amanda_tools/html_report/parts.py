"""What rich prints on a terminal becomes texts and tables of plain values for a page."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Console
from rich.protocol import rich_cast
from rich.table import Table
from rich.text import Text

from amanda_tools.notice import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

    from amanda_tools.report import Unit

# A text ``{"kind": "text", "text": ...}``, the same with ``"terminal"`` where blanks count, or a
# table ``{"kind": "table", "titles": ..., "units": ..., "rows": ..., "of": ..., "nested": ...}``
# of ``of`` rows, of which the first are there, with a ``caption`` above it or none. Cells are text,
# or numbers in a unit.
Part: TypeAlias = "dict[str, Any]"

_MOST = 10_000  # rows of a table; a page with more of them is slow to open
_LONGEST = 300  # characters of a cell
_LONGEST_LIST = 100  # and of one that is no text
_WIDE = 10_000  # characters of a line: as many as need be
_TERMINAL = 120  # of what is no table


def parts_of(renderable: RenderableType) -> list[Part]:
    """Turn a renderable into texts and tables; what is neither is as on a terminal."""
    renderable = rich_cast(renderable)
    if isinstance(renderable, (str, Text)):
        return [{"kind": "text", "text": printable(str(renderable))}]
    if isinstance(renderable, Table):
        return [_table(renderable), *_caption(renderable)]
    console = _console(_WIDE)
    shown = getattr(renderable, "__rich_console__", None)
    inside = [] if shown is None else list(shown(console, console.options))
    if inside and all(isinstance(part, (str, Text, Table)) for part in inside):
        return [part for each in inside for part in parts_of(each)]
    return [{"kind": "terminal", "text": _as_on_terminal(renderable, _TERMINAL)}]


def table_part(
    titles: Sequence[str],
    rows: Iterable[Sequence[object]],
    number: int,
    units: Mapping[str, Unit],
) -> Part:
    """Make a table of rows of plain values, which are ``number`` in all."""
    kept = [[_cell(value) for value in row] for row, _ in zip(rows, range(_MOST), strict=False)]
    return {
        "kind": "table",
        "titles": list(titles),
        "units": [units.get(title) for title in titles],
        "rows": kept,
        "of": number,
        "nested": False,
    }


def _table(table: Table) -> Part:
    """Make a table of rich's one; one whose first column is indented keeps its order."""
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    titles = [" ".join(_plain(column.header).split()) for column in table.columns]
    rows = [list(cells) for cells in zip(*columns, strict=True)]
    part = table_part(titles, rows, len(rows), {})
    part["units"] = ["shown" if c.justify == "right" else None for c in table.columns]
    if table.title is not None:
        part["caption"] = _plain(table.title)
    part["nested"] = any(cell.startswith("  ") for cell in columns[0]) if columns else False
    return part


def _caption(table: Table) -> list[Part]:
    return [] if table.caption is None else [{"kind": "text", "text": _plain(table.caption)}]


def _plain(cell: RenderableType) -> str:
    if isinstance(cell, str):
        cell = _console(_WIDE).render_str(cell)
    return printable(cell.plain if isinstance(cell, Text) else _as_on_terminal(cell, _TERMINAL))


def _cell(value: object) -> object:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):  # JSON has no NaN, and no infinity
        return value if value - value == 0 else str(value)
    if isinstance(value, str):
        return _cut(printable(value), _LONGEST)
    return _cut(printable(json.dumps(_rounded(value), default=str)), _LONGEST_LIST)


def _rounded(value: object) -> object:
    """Return a value with fewer digits, also within lists."""
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


def _as_on_terminal(renderable: RenderableType, width: int) -> str:
    console = _console(width)
    with console.capture() as captured:
        console.print(renderable)
    return printable("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _console(width: int) -> Console:
    return Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
