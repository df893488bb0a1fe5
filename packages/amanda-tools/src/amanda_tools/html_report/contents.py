"""A page shows operators by module, timelines and a section for each tool, of plain values.

A tool is asked for what the terminal shows of it (:class:`amanda_tools.results.Contribution`), and
for its rows and picture, if it has some. So one that knows nothing of pages is on them all the
same.
"""

from __future__ import annotations

import contextlib
import linecache
import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amanda_tools.findings import Findings, field_names
from amanda_tools.html_report.parts import parts_of, table_part
from amanda_tools.merging import Merged
from amanda_tools.notice import described, printable
from amanda_tools.place import paths
from amanda_tools.report import APART, told_once

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from amanda_tools.html_report.parts import Part
    from amanda_tools.html_report.timeline import Timeline
    from amanda_tools.place import Place
    from amanda_tools.report import Column
    from amanda_tools.results import Contribution


_LONGEST = 200  # characters of a line of code


@dataclass
class Section:
    """A section has what one tool contributes below the tables that all share.

    Attributes:
        title: the tool.
        found: what it found, in a few words.
        partial: why that is not all that there was to find; None if it is all.
        parts: texts and tables, as the terminal shows them.
        svg: its picture; None if it has none.
        rows: a table of all its rows; None if it has none.
    """

    title: str
    found: str = ""
    partial: str | None = None
    parts: list[Part] = field(default_factory=list)
    svg: str | None = None
    rows: Part | None = None


@dataclass
class Contents:
    """These are the contents of a page: all that it shows.

    Attributes:
        title: what ran.
        facts: names and values worth knowing of the run.
        columns: numbers by operator, of all tools.
        sources: the file and line of operators, by id.
        timelines: when their executions were.
        sections: what each tool has to say.
        reads_code: whether lines of the program that are named may be read from its files.
    """

    title: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    timelines: list[Timeline] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    reads_code: bool = False

    def add(self, contributions: Iterable[Contribution]) -> None:
        """Take what tools contribute, each in a section of its own."""
        for contribution in contributions:
            tool = contribution.tool
            title = tool.found() if isinstance(tool, Merged) else contribution.name
            section = Section(printable(title))
            self.sections.append(section)
            self.columns += contribution.columns
            for part in contribution.parts:
                with _told(section, "this part"):
                    section.parts += parts_of(part)
            if isinstance(tool, Findings):
                with _told(section, "the rows"):
                    self._add_findings(section, tool)
            if any(section.found in part.get("text", "") for part in section.parts):
                section.found = ""  # which is said already
            if hasattr(tool, "to_svg") and (section.rows or not isinstance(tool, Findings)):
                with _told(section, "the picture"):
                    section.svg = str(tool.to_svg())

    def _add_findings(self, section: Section, tool: Findings[Any]) -> None:
        section.found = printable(tool.found())
        section.partial = None if tool.partial is None else printable(tool.partial)
        rows, names = tool.rows(), field_names(tool.row_type)
        if {"id", "source"} <= set(names):
            for row in rows:
                if row.source is not None:
                    self.sources.setdefault(row.id, row.source)
        if rows:
            section.rows = table_part(
                names, ([getattr(r, n) for n in names] for r in rows), len(rows), tool.units
            )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, from which the page's script makes its tables and drawings."""
        return {
            **self._operators(columns := told_once(self.columns)),
            "flames": _flames(columns),
            "timelines": [timeline.to_dict() for timeline in self.timelines if len(timeline)],
            "sections": [
                {"parts": section.parts, "rows": section.rows} for section in self.sections
            ],
        }

    def _operators(self, columns: Sequence[Column]) -> dict[str, Any]:
        around = paths(dict.fromkeys(place for column in columns for place in column.values))
        modules: dict[tuple[str, ...], int] = {(): 0}
        listed: list[list[Any]] = [["total", -1]]
        lines = _Lines(self.sources, reads_code=self.reads_code)

        def number(path: tuple[str, ...]) -> int:
            for length in range(1, len(path) + 1):
                if path[:length] not in modules:
                    modules[path[:length]] = len(listed)
                    listed.append([printable(path[length - 1]), modules[path[: length - 1]]])
            return modules[path]

        return {
            "columns": [
                {"title": printable(c.title), "unit": c.unit, "detail": c.detail} for c in columns
            ],
            "operators": {
                "module": [number(_path(place, path)) for place, path in around.items()],
                "id": [printable(place.id) for place in around],
                "type": [printable(place.type) for place in around],
                "line": [lines.of(place.id) for place in around],
                "values": [[_plain(c.values.get(place, 0)) for place in around] for c in columns],
            },
            "modules": listed,
            "lines": lines.listed,
        }


def _flames(columns: Sequence[Column]) -> dict[str, Any]:
    """List what flame graphs can show: a label, and the title and column of one graph or two.

    A column for the forward pass and its like for the backward pass are shown together. The first
    that is shown is of times, if there are some.
    """
    known = {(column.title, column.unit): index for index, column in enumerate(columns)}
    choices: list[list[Any]] = []
    paired: set[int] = set()
    for index, (title, unit) in enumerate((c.title, c.unit) for c in columns):
        backward = "Backward" if title == "Forward" else f"Backward {title}"
        if unit == "share" or index in paired:
            continue
        if (other := known.get((backward, unit))) is None:
            choices.append([printable(title), [printable(title), index]])
            continue
        paired.add(other)
        what = "Time" if title == "Forward" else printable(title)
        choices.append([f"{what}, forward and backward", ["Forward", index], ["Backward", other]])
    times = [columns[graphs[0][1]].unit == "nanoseconds" for _, *graphs in choices]
    return {"choices": choices, "first": times.index(True) if True in times else 0}


def _path(place: Place, path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the modules around an operator; one for its purpose if it is no part of a model."""
    return (f"({APART[place.purpose]})",) if place.purpose in APART else path


class _Lines:
    """This lists lines of the program once each: where they are, and their code if it is read."""

    def __init__(self, sources: Mapping[str, str], *, reads_code: bool) -> None:
        self._sources = sources
        self._reads_code = reads_code
        self._numbers: dict[str, int] = {}
        self.listed: list[list[str]] = []

    def of(self, id: str) -> int:
        """Return the number of an operator's line; -1 if nobody can tell it."""
        source = self._sources.get(id)
        if source is None:
            return -1
        if source not in self._numbers:
            self._numbers[source] = len(self.listed)
            file, _, line = source.rpartition(":")
            code = ""
            if self._reads_code and line.isdecimal():
                code = linecache.getline(file, int(line)).strip()[:_LONGEST]
            self.listed.append([printable(_short(source)), printable(code)])
        return self._numbers[source]


def _short(source: str) -> str:
    """Return a file and line without the folders that say nothing to who reads it."""
    source = source.replace(os.sep, "/")
    for folder in ("/site-packages/", "/dist-packages/", f"{_folder()}/"):
        _, found, rest = source.rpartition(folder)
        if found:
            return rest
    return source


def _folder() -> str:
    try:
        return os.getcwd().replace(os.sep, "/")
    except OSError:  # it was removed
        return "."


def _plain(number: float) -> float:
    """Return a number as JSON has it, also one of NumPy's; JSON has no NaN, and no infinity."""
    if not math.isfinite(number):
        return 0
    return int(number) if number == int(number) else float(f"{float(number):.6g}")


@contextlib.contextmanager
def _told(section: Section, what: str) -> Iterator[None]:
    """Have a section say that a tool failed in a ``with`` block, and go on behind it."""
    try:
        yield
    except Exception as error:  # of whatever the tool has made
        text = f"{what} cannot be shown: {described(error)}"
        section.parts.append({"kind": "text", "text": text})


def merged_places(columns: Sequence[Column]) -> list[Column]:
    """Return columns of several files, in which an operator is known by its id alone."""
    known: dict[str, Place] = {}
    for column in columns:
        for place in column.values:
            other = known.get(place.id)
            if other is None or (other.purpose, other.model) == ("model", None):
                known[place.id] = place
    return [
        column._replace(values={known[place.id]: v for place, v in column.values.items()})
        for column in columns
    ]
