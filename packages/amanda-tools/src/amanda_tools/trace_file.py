"""Executions go to files of JSON Lines, JSON or CSV, which can be read while they grow."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amanda_tools.formats import csv_line, ending_of
from amanda_tools.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amanda_tools.execution import Execution, Kind


@dataclass
class TraceRow:
    """This is one execution, as a row of a file.

    Attributes:
        id, type, scope: the operator.
        source: file and line of the program's code that runs it, or made its node of a graph; None
            if nobody can tell.
        direction: forward or backward.
        operator: the id of the forward operator that it belongs to.
        iteration: how many times it had run before.
        start, duration: in nanoseconds.
        input_shapes, input_dtypes, output_shapes, output_dtypes: of its tensors; for a backward
            operator the inputs and outputs are gradients, None where none flows.
    """

    id: str
    type: str
    scope: str
    source: str | None
    direction: str
    operator: str
    iteration: int
    start: int
    duration: int
    input_shapes: list[list[int | None] | None]
    input_dtypes: list[str | None]
    output_shapes: list[list[int | None] | None]
    output_dtypes: list[str | None]


_KINDS: dict[str, Any] = {
    **dict.fromkeys(("id", "type", "scope"), str),
    "source": str | None,
    **dict.fromkeys(("direction", "operator"), str),
    **dict.fromkeys(("iteration", "start", "duration"), int),
    **dict.fromkeys(("input_shapes", "input_dtypes", "output_shapes", "output_dtypes"), list),
}


def trace_file(path: str | os.PathLike[str]) -> Log[Execution]:
    """Return a file to write executions to.

    Raises:
        OSError: it cannot be written there.
        ValueError: its name does not end in ``.jsonl``, ``.json`` or ``.csv``.
    """
    ending = ending_of(path, (".jsonl", ".json", ".csv"))
    if ending == ".csv":
        return Log(path, _csv, header=csv_line(_KINDS))
    if ending == ".json":
        return Log(path, _json, header="[\n", separator=",\n", footer="\n]\n")
    return Log(path, lambda execution: _json(execution) + "\n")


def _json(execution: Execution) -> str:
    kind, number, start, duration = execution[:4]
    before, after = kind.once(_json_around)
    return f'{before}, "iteration": {number}, "start": {start}, "duration": {duration}, {after}'


def _csv(execution: Execution) -> str:
    kind, number, start, duration = execution[:4]
    before, after = kind.once(_csv_around)
    return f"{before},{number},{start},{duration},{after}"


def _json_around(kind: Kind) -> tuple[str, str]:
    """Return the fields of a row ahead of those that differ between executions, and behind them."""
    before, after = _fields(kind)
    return json.dumps(before)[:-1], json.dumps(after)[1:]


def _csv_around(kind: Kind) -> tuple[str, str]:
    before, after = _fields(kind)
    return csv_line(before.values()).removesuffix("\n"), csv_line(after.values())


def _fields(kind: Kind) -> tuple[dict[str, Any], dict[str, Any]]:
    place, inputs, outputs = kind.place, kind.inputs, kind.outputs
    before = {
        "id": place.id,
        "type": place.type,
        "scope": place.scope,
        "source": kind.source,
        "direction": kind.direction,
        "operator": kind.forward.id,
    }
    after = {
        "input_shapes": inputs.shapes,
        "input_dtypes": inputs.dtypes,
        "output_shapes": outputs.shapes,
        "output_dtypes": outputs.dtypes,
    }
    return before, after


def read_trace(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Read the rows of a trace, one dict per execution, as they are asked for.

    ``pandas.DataFrame(read_trace(path))`` makes a table of them.

    A last line that was cut off, as when the process was killed while writing, is left out. An
    empty file is the trace of nothing.

    Raises:
        OSError: the file cannot be read.
        ValueError: another line is not of a trace, or what is there of the last one.
    """
    ending = os.path.splitext(path)[1].lower()
    read = _csv_row if ending == ".csv" else _json_row
    around = {".json": ("[\n", "]\n"), ".csv": (csv_line(_KINDS),)}.get(ending, ())
    broken: ValueError | None = None
    line = ""
    with Path(path).open(encoding="utf-8", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, 1):
            if broken is not None:
                raise broken
            if not line.strip() or line in around:
                continue
            row = read(line)
            if row is not None and all(isinstance(row.get(f), k) for f, k in _KINDS.items()):
                yield row
            else:
                broken = ValueError(f"{path}, line {number}: not a line of a trace")
    if broken is not None and (line.endswith("\n") or not _is_beginning(line, ending)):
        raise broken


def _json_row(line: str) -> dict[str, Any] | None:
    """Return what is in a line, behind which a comma may stand; None if it is no row."""
    try:
        row = json.loads(line.rstrip().removesuffix(","))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _csv_row(line: str) -> dict[str, Any] | None:
    """Return what is in a line; None if it is no row."""
    try:
        (cells,) = csv.reader([line])
        return {
            name: cell if kind is str else (cell or None) if name == "source" else json.loads(cell)
            for (name, kind), cell in zip(_KINDS.items(), cells, strict=True)
        }
    except (ValueError, RecursionError, csv.Error):
        return None


def _is_beginning(line: str, ending: str) -> bool:
    """Tell whether a line that ends too early may be a trace's: its first field is the same."""
    first = '{"id": "'
    return ending == ".csv" or line.startswith(first) or first.startswith(line)
