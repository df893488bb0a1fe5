"""Trace: one line per execution."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import amanda

from amanda_tools.executions import Executions
from amanda_tools.log import Log

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from amanda_tools.executions import Execution


class Trace(amanda.Tool):
    """Writes one line of JSON per execution, forward and backward, in the order they end.

    Fields: ``id``, ``type`` and ``scope`` of the operator, ``direction`` (forward or backward),
    ``operator`` (id of the forward operator that it belongs to), ``iteration`` (how many times it
    had run before), ``start`` and ``duration`` in nanoseconds, ``input_shapes``,
    ``input_dtypes``, ``output_shapes`` and ``output_dtypes``; for a backward operator the inputs
    and outputs are gradients, null where none flows. :func:`read_trace` reads it back.

    Args:
        out: the file to write, JSON Lines.
    """

    def __init__(self, out: str | os.PathLike[str]) -> None:
        super().__init__()
        self._log = Log(out, _line)
        self.depends_on(Executions)
        self.add_inst_for_op(self._analyze)
        self.add_inst_for_op(self._analyze, backward=True)

    def open(self) -> None:
        """Make the file, which the first execution does otherwise.

        Raises:
            OSError: it cannot be written.
        """
        self._log.open()

    def on_exit(self) -> None:
        """Bring the file up to date."""
        self._log.flush()

    def report(self) -> str:
        """What was written, and where."""
        return f"trace: {self._log.written:,} executions in {self._log.state}"

    def _analyze(self, ctx: amanda.OpContext) -> None:
        self.dependency(Executions).observe(ctx, self._log.write)


_FIELDS = {
    **dict.fromkeys(("id", "type", "scope", "direction", "operator"), str),
    **dict.fromkeys(("iteration", "start", "duration"), int),
    **dict.fromkeys(("input_shapes", "input_dtypes", "output_shapes", "output_dtypes"), list),
}


def _line(execution: Execution) -> str:
    row = {
        "id": execution.place.id,
        "type": execution.place.type,
        "scope": execution.place.scope,
        "direction": execution.direction,
        "operator": execution.forward.id,
        "iteration": execution.iteration,
        "start": execution.start,
        "duration": execution.duration,
        "input_shapes": execution.inputs.shapes,
        "input_dtypes": execution.inputs.dtypes,
        "output_shapes": execution.outputs.shapes,
        "output_dtypes": execution.outputs.dtypes,
    }
    return json.dumps(row) + "\n"


def read_trace(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The rows of a trace, one dict per execution, read as they are asked for.

    ``pandas.DataFrame(read_trace(path))`` makes a table of them.

    A last line that was cut off, as when the process was killed while writing, is left out. An
    empty file is the trace of nothing.

    Raises:
        OSError: the file cannot be read.
        ValueError: another line is not of a trace, or what is there of the last one.
    """
    broken: ValueError | None = None
    line = ""
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if broken is not None:
                raise broken
            if not line.strip():
                continue
            row = _row(line)
            if row is not None:
                yield row
            else:
                broken = ValueError(f"{path}, line {number}: not a line of a trace")
    if broken is not None and (line.endswith("\n") or not _is_beginning(line)):
        raise broken


def _row(line: str) -> dict[str, Any] | None:
    """The row in a line of a trace; None for any other line."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    fits = all(field in row and isinstance(row[field], kind) for field, kind in _FIELDS.items())
    return row if fits else None


def _is_beginning(line: str) -> bool:
    """Whether a line that ends too early may be one of a trace: its first field is the same."""
    first = '{"id": "'
    return line.startswith(first) or first.startswith(line)
