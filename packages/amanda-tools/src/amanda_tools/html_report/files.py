"""What tools wrote to files is read as the contents of a page."""

from __future__ import annotations

import os
from numbers import Real
from typing import TYPE_CHECKING, Any

from amanda_tools.formats import ending_of, read_json
from amanda_tools.html_report.contents import Contents, Section, merged_places
from amanda_tools.html_report.executions_of_files import of_chrome_trace, of_trace
from amanda_tools.html_report.parts import table_part
from amanda_tools.html_report.timeline import Timeline
from amanda_tools.interrupts import leave_with, uninterrupted
from amanda_tools.notice import printable
from amanda_tools.place import Place
from amanda_tools.profile import Profile
from amanda_tools.progress import progress
from amanda_tools.report import UNITS, Column
from amanda_tools.results import Contribution
from amanda_tools.trace_file import read_trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amanda_tools.html_report.executions_of_files import Recorded


def contents_of_files(paths: Sequence[str]) -> Contents:
    """Read what tools wrote: traces, Chrome traces of profiles, and what they found as JSON.

    Raises:
        OSError: a file cannot be read.
        ValueError: one is of something else, and what.
        KeyboardInterrupt: Ctrl-C; its attribute ``found`` has the contents of what was read until
            then, which say so.
    """
    contents = Contents(", ".join(os.path.basename(path) for path in paths))
    read = 0
    try:
        with progress("reading", len(paths)) as step:
            for path in paths:
                found = _read(path)
                with uninterrupted():
                    _add(contents, path, found)
                    read += 1
                step()
    except KeyboardInterrupt as stop:
        if read:
            said = f"{read:,} of {len(paths):,} files"
            contents.facts.append(("Partial", said))
            leave_with(stop, contents, said)
        raise
    finally:
        contents.columns = merged_places(contents.columns)
    return contents


def _add(contents: Contents, path: str, found: dict[str, Any] | list[Recorded]) -> None:
    name = os.path.basename(path)
    if isinstance(found, list):
        _add_executions(contents, name, found)
        return
    try:
        _add_findings(contents, name, found)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _unknown(path) from None


def _read(path: str) -> dict[str, Any] | list[Recorded]:
    """Read findings as a dict, or executions."""
    if ending_of(path, (".json", ".jsonl", ".csv")) != ".json":
        return of_trace(read_trace(path))
    found = read_json(path)
    if isinstance(found, dict) and _tables(found):
        return found
    if isinstance(found, list) and not any(isinstance(e, dict) and "ph" in e for e in found):
        return of_trace(read_trace(path))
    try:
        return of_chrome_trace(found)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _unknown(path) from None


def _unknown(path: str) -> ValueError:
    return ValueError(
        f"{path}: no tool of Amanda's has written it; `amanda report` reads traces, "
        "the JSON of profile, and what other tools write to a file that ends in .json"
    )


def _tables(found: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the lists of rows in findings, and their totals, which are one row."""
    tables = {}
    for name, value in found.items():
        rows = [value] if name == "total" else value
        if isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
            tables[name] = rows
    return tables


def _add_executions(contents: Contents, name: str, found: Sequence[Recorded]) -> None:
    timeline, profile = Timeline(name), Profile()
    for execution, track, _ in found:
        timeline.add(execution, track)
        profile.add(execution)
    contents.timelines.append(timeline)
    columns = profile.columns()
    contents.add([Contribution(profile, name, columns, profile.report())])


def _add_findings(contents: Contents, name: str, found: Mapping[str, Any]) -> None:
    way, show = found.get("merge", {}), found.get("show", {})
    section = Section(printable(f"{way['tool']}, {name}" if "tool" in way else name))
    section.partial = printable(str(found["partial"])) if "partial" in found else None
    contents.sections.append(section)
    for title, rows in _tables(found).items():
        names = list(dict.fromkeys(field for row in rows for field in row))
        cells = [[row.get(field) for field in names] for row in rows]
        part = table_part(names, cells, len(rows), show.get("units", {}))
        part["caption"] = title
        if title == way.get("rows"):
            section.rows = part
            contents.columns += _columns(rows, show)
        else:
            section.parts.append(part)


def _columns(rows: Sequence[Mapping[str, Any]], show: Mapping[str, Any]) -> list[Column]:
    """Make columns of the fields of rows that modules have the sums of."""
    columns = []
    for field, title in show.get("sums", {}).items():
        values: dict[Place, float] = {}
        for row in rows:
            if isinstance(number := row.get(field), Real):
                id, purpose = row.get("operator", row["id"]), row.get("purpose", "model")
                place = Place(str(id), str(row["type"]), str(row["scope"]), str(purpose))
                values[place] = values.get(place, 0) + float(number)
        unit = show.get("units", {}).get(field, "count")
        if any(values.values()):
            columns.append(Column(str(title), values, unit if unit in UNITS else "count"))
    return columns
