"""What a tool found is data: rows of plain values, for programs, files and notebooks."""

from __future__ import annotations

import abc
import html
from dataclasses import asdict, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import amanda

from amanda_tools.optional_packages import needed
from amanda_tools.report import in_unit
from amanda_tools.tables import cell_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amanda_tools.report import Unit

_SHOWN = 100  # rows of a table in a notebook
_LISTED = 4  # elements of a list in a cell of it

_Row = TypeVar("_Row")
How = Literal["sum", "mean", "least", "most"]


class Findings(abc.ABC, Generic[_Row]):
    """This is a second base of tools that find rows of a dataclass whose fields are plain values.

    In a notebook such a tool is shown as a table.

    Attributes:
        row_type: the dataclass.
        rows_name: what the rows are, in :meth:`to_dict`.
        keys: the fields by which rows of several processes are known to be of one thing.
        merges: what becomes of a number of such rows, and of the totals, by its name: its ``sum``,
            ``mean``, ``least`` or ``most`` over the processes. Other fields are those of the first
            one. If it is empty, rows do not merge: they are listed with their ranks.
        units: how numbers are shown, by the names of their fields.
        sums: the fields that a module has the sum of, of all operators in it, with the heading of
            the column.
    """

    row_type: ClassVar[type]
    rows_name: ClassVar[str] = "operators"
    keys: ClassVar[tuple[str, ...]] = ("id",)
    merges: ClassVar[Mapping[str, How]] = MappingProxyType({})
    units: ClassVar[Mapping[str, Unit]] = MappingProxyType({})
    sums: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @abc.abstractmethod
    def rows(self) -> Sequence[_Row]:
        """Return what was found, a row for each operator."""

    @abc.abstractmethod
    def found(self) -> str:
        """Tell what was found, in a few words."""

    def totals(self) -> Mapping[str, Any]:
        """Return what is to be said of all rows together, as plain values."""
        return {}

    @property
    def partial(self) -> str | None:
        """Tell why this is not all that there was to find; None if it is all."""
        return ended_early(self) if isinstance(self, amanda.Tool) else None

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values: ``total``, the rows under their name, and what is to be
        done with these: how they merge, and how they are shown.

        What is not all that there was to find says so ahead of them, under ``partial``.
        """
        rows = [asdict(row) for row in self.rows()]  # type: ignore[call-overload]
        total = self.totals()
        found: dict[str, Any] = {} if self.partial is None else {"partial": self.partial}
        if total:
            found["total"] = dict(total)
        found |= {self.rows_name: rows, "merge": self.how_to_merge()}
        if self.units or self.sums:
            found["show"] = {"units": dict(self.units), "sums": dict(self.sums)}
        return found

    def how_to_merge(self) -> dict[str, Any]:
        """Tell as plain values how rows of several processes merge."""
        return {
            "tool": type(self).__name__,
            "rows": self.rows_name,
            "keys": list(self.keys),
            "fields": dict(self.merges),
        }

    def to_pandas(self) -> Any:
        """Make a ``pandas.DataFrame`` with a row for each row, and a column for each field.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        pandas = needed(
            "pandas",
            "to_pandas() needs pandas; python -m pip install pandas, or take rows() or "
            "to_dict(), which need nothing",
        )
        rows = [asdict(row) for row in self.rows()]  # type: ignore[call-overload]
        return pandas.DataFrame(rows, columns=field_names(self.row_type))

    def __repr__(self) -> str:
        return f"<{self._caption()}>"

    def _caption(self) -> str:
        said = "" if self.partial is None else f" (partial: {self.partial})"
        return f"{type(self).__name__}: {self.found()}{said}"

    def _repr_html_(self) -> str:
        """Show the first rows as a table in a notebook, without fields that no row knows."""
        rows, names = self.rows(), field_names(self.row_type)
        known = [n for n in names if any(getattr(row, n) is not None for row in rows)] or names
        head = "".join(f"<th>{html.escape(name)}</th>" for name in known)
        body = "".join(
            f"<tr>{''.join(_cell(getattr(row, n), self.units.get(n)) for n in known)}</tr>"
            for row in rows[:_SHOWN]
        )
        rest = len(rows) - _SHOWN
        caption = html.escape(self._caption())
        if rest > 0:
            caption += f"; {rest:,} more rows are in rows()"
        return (
            f"<table><caption>{caption}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


def ended_early(tool: amanda.Tool) -> str | None:
    """Tell what ended the scopes of a tool early; None if nothing did."""
    return f"ended by {', '.join(dict.fromkeys(tool.cut_short))}" if tool.cut_short else None


def field_names(row_type: type) -> list[str]:
    """List the names of a dataclass's fields, in their order."""
    return [field.name for field in fields(row_type)]


def _cell(value: object, unit: Unit | None) -> str:
    """Make a cell of a table, which shows a value as a terminal does."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return f"<td>{html.escape(_text(value))}</td>"
    shown = cell_text(value) if unit is None else in_unit(value, unit)
    return f'<td style="text-align: right">{shown}</td>'


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        rest = [f"... ({len(value):,})"] if len(value) > _LISTED else []
        return ", ".join([*map(cell_text, value[:_LISTED]), *rest])
    return cell_text(value)
