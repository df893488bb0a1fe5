"""Tables show what tools found, by module and by operator type.

A tool contributes by having one or both of these methods:

* ``columns()`` gives :class:`Column` objects, numbers by operator, which the tables add up;
* ``report()`` gives anything that rich can print, which is printed below the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

from rich.box import SIMPLE_HEAD
from rich.jupyter import JupyterMixin
from rich.table import Table
from rich.text import Text

from amanda_tools.notice import printable
from amanda_tools.place import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from amanda_tools.place import Place

    _Row = tuple[Text, Sequence[float]]

Unit = Literal["count", "bytes", "nanoseconds", "share"]

# Heading of the column of how often operators ran, which more than one tool tells.
EXECUTIONS = "Count"

# Purposes of operators that are no part of a model, and what their rows are called.
APART = {"data": "data loading", "initialization": "initialization"}

_SIBLINGS = 16  # more modules side by side than this are not all shown
_DEEPEST = 100  # levels; modules may nest deeper than calls
_LABEL = 24  # characters of a label that are worth more than a column of details


class Column(NamedTuple):
    """A column has numbers by operator, which add up: a module has the sum of what is in it.

    Attributes:
        title: heading, short; it is broken at spaces.
        values: by operator.
        unit: how they are shown. A share is a fraction of 1.
        detail: the first to go where the terminal is too narrow for all columns.
    """

    title: str
    values: Mapping[Place, float]
    unit: Unit = "count"
    detail: bool = False


@runtime_checkable
class HasColumns(Protocol):
    """This is a tool that contributes to the tables."""

    def columns(self) -> Sequence[Column]:
        """Return numbers by operator."""


@runtime_checkable
class HasReport(Protocol):
    """This is a tool that has something to say at the end."""

    def report(self) -> RenderableType | list[RenderableType] | None:
        """Return what to print, or several things one after the other."""


def columns_of(tools: Iterable[object]) -> list[Column]:
    """Return the columns of all the tools that have some, in the order of the tools."""
    return [c for tool in tools if isinstance(tool, HasColumns) for c in tool.columns()]


def by_module(columns: Sequence[Column], depth: int = 2) -> Report:
    """Make a row for each module down to ``depth`` levels, indented as they nest.

    Modules around the whole model are no level, nor are models, which have rows where modules
    alone do not tell them apart. What is no part of it, as the loading of data,
    stands below it, in a row for each purpose.
    """
    columns = told_once(columns)
    around = paths(dict.fromkeys(place for column in columns for place in column.values))
    total = _Module("total", len(columns))
    apart: dict[str, list[float]] = {}
    for index, column in enumerate(columns):
        for place, value in column.values.items():
            if place.purpose in APART:
                total.values[index] += value
                apart.setdefault(place.purpose, [0.0] * len(columns))[index] += value
            else:
                total.add(around[place], index, value)
    has_models = any(path != place.modules for place, path in around.items())
    if has_models or len(total.children) == 1:
        depth += depth > 0
    rows = list(total.rows(depth))
    if depth:
        rows += ((Text(f"  ({APART[p]})", style="dim"), apart[p]) for p in APART if p in apart)
    return Report("Module", columns, rows)


def by_type(columns: Sequence[Column], limit: int = 10) -> Report:
    """Make a row for each of the ``limit`` operator types with the largest share.

    Where no column is a share, those with the largest number in the first column.
    """
    columns = told_once(columns)
    sums: dict[str, list[float]] = {}
    for index, column in enumerate(columns):
        for place, value in column.values.items():
            sums.setdefault(place.type, [0] * len(columns))[index] += value
    key = next((i for i, column in enumerate(columns) if column.unit == "share"), 0)
    ranked = sorted(sums, key=lambda type: -sums[type][key])
    rows: list[_Row] = [(Text(printable(type)), sums[type]) for type in ranked[:limit]]
    if rest := ranked[limit:]:
        label = Text(f"{len(rest)} other types", style="dim")
        rows.append((label, _added(sums[type] for type in rest)))
    return Report("Type", columns, rows)


def told_once(columns: Sequence[Column]) -> list[Column]:
    """Merge columns of one number; of those that know an operator, the first one counts."""
    told: dict[tuple[str, str], Column] = {}
    for column in columns:
        key = column.title, column.unit
        values = told[key].values if key in told else {}
        told[key] = column._replace(values={**column.values, **values})
    return sorted(told.values(), key=lambda column: column.title == EXECUTIONS)


class Report(JupyterMixin):
    """This table of numbers fits: columns of details go first, then the ends of labels."""

    def __init__(self, title: str, columns: Sequence[Column], rows: Sequence[_Row]) -> None:
        self._title = title
        self._columns = columns
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = list(range(len(self._columns)))
        wish = max((len(label) for label, _ in self._rows), default=0)
        while True:
            table = self._table(shown)
            width = console.measure(table, options=options.update(width=10_000)).maximum
            room = options.max_width - (width - wish)
            details = [index for index in shown if self._columns[index].detail]
            if room >= min(wish, _LABEL) or not details:
                break
            shown.remove(details[-1])
        if room < wish:
            table.columns[0].width = max(room, len(self._title))
        yield table

    def _table(self, shown: Sequence[int]) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column(self._title, no_wrap=True, overflow="ellipsis", vertical="bottom")
        for index in shown:
            title = self._columns[index].title.replace(" ", "\n")
            table.add_column(title, justify="right", no_wrap=True, vertical="bottom")
        for label, values in self._rows:
            cells = ((self._columns[index].unit, values[index]) for index in shown)
            table.add_row(label, *(_SHOWN[unit](value) if value else "" for unit, value in cells))
        return table


class _Module:
    """A node of the tree has what is in a module, and in the modules in it."""

    def __init__(self, name: str, width: int) -> None:
        self.name = name
        self.children: dict[str, _Module] = {}
        self.values = [0.0] * width
        self.own = [0.0] * width

    def add(self, path: Sequence[str], column: int, value: float) -> None:
        module = self
        module.values[column] += value
        for name in path:
            if name not in module.children:
                module.children[name] = _Module(name, len(self.values))
            module = module.children[name]
            module.values[column] += value
        module.own[column] += value

    def rows(self, depth: int, level: int = 0) -> Iterator[_Row]:
        """Give rows for this module and those in it; one with a single child shares its row."""
        indent, names, module = "  " * level, [self.name], self
        while level and len(module.children) == 1 and not any(module.own):
            (module,) = module.children.values()
            names.append(module.name)
        name = printable(".".join(names))
        yield Text(f"{indent}{name}", style="" if level else "bold"), module.values
        if level == min(depth, _DEEPEST) or not module.children:
            return
        children = list(module.children.values())
        shown = children if len(children) <= _SIBLINGS else children[: _SIBLINGS - 1]
        for child in shown:
            yield from child.rows(depth, level + 1)
        if rest := children[len(shown) :]:
            label = Text(f"{indent}  {len(rest)} more", style="dim")
            yield label, _added(module.values for module in rest)
        if any(module.own):
            yield Text(f"{indent}  (own operators)", style="dim"), module.own


def _added(rows: Iterable[Sequence[float]]) -> list[float]:
    return [sum(column) for column in zip(*rows, strict=True)]


def count(number: float) -> str:
    """Write a number in three digits: ``1.23 G``."""
    return _scaled(number, 1000, ("", " k", " M", " G", " T", " P", " E"))


def size(number: float) -> str:
    """Write bytes in three digits: ``1.23 MiB``."""
    return _scaled(number, 1024, (" B", " KiB", " MiB", " GiB", " TiB"))


def nanoseconds(number: float) -> str:
    """Write a time in three digits: ``1.23 ms``."""
    return _scaled(number, 1000, (" ns", " µs", " ms", " s"))


def share(number: float) -> str:
    """Write a fraction as a percentage: ``12.3%``."""
    return f"{number:.1%}"


_SHOWN: dict[Unit, Callable[[float], str]] = {
    "count": count,
    "bytes": size,
    "nanoseconds": nanoseconds,
    "share": share,
}


UNITS = tuple(_SHOWN)


def in_unit(number: float, unit: Unit) -> str:
    """Write a number as tables show it."""
    return _SHOWN[unit](number)


def _scaled(number: float, step: int, units: Sequence[str]) -> str:
    power = 0
    while abs(number) >= step - 0.5 and power < len(units) - 1:  # what would be shown as step
        number /= step
        power += 1
    digits = 0 if power == 0 else sum(abs(number) < bound for bound in (10, 100))
    return f"{number:.{digits}f}{units[power]}"
