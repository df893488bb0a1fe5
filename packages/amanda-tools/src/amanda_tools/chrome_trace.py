"""A Chrome trace of executions: rows of operators, nested in the modules that they are in.

The format is the JSON Array Format of the Trace Event Format, which Perfetto and chrome://tracing
open; its times are microseconds.
"""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

from amanda_tools.log import Log

if TYPE_CHECKING:
    from pathlib import Path

    from amanda_tools.executions import Direction, Execution


class _Slice:
    """A module that is running; its time is that from its first operator to its last."""

    __slots__ = ("end", "name", "start")

    def __init__(self, name: str, start: int, end: int) -> None:
        self.name = name
        self.start = start
        self.end = end


class _Row:
    """One track of the trace: what runs one after the other."""

    __slots__ = ("met", "number", "open")

    def __init__(self, number: int) -> None:
        self.number = number
        self.open: list[_Slice] = []
        self.met: set[str] = set()


class ChromeTrace:
    """Writes executions as they end, to a file that is complete after every :meth:`flush`.

    Modules are derived from the scopes of operators alone: one begins with its first operator and
    ends when an operator outside of it follows, or when an operator runs for a second time, which
    within one pass through a model none does.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._log = Log(path, header="[\n", separator=",\n", footer="\n]\n")
        self._rows: dict[tuple[Direction, int], _Row] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._metadata("process_name", name="amanda")

    @property
    def path(self) -> Path:
        """Where it is written."""
        return self._log.path

    def add(self, execution: Execution) -> None:
        """Add an execution that has ended."""
        with self._lock:
            row = self._row(execution.direction)
            self._enter(row, execution)
            self._slice(
                row,
                execution.place.type,
                "operator",
                execution.start,
                execution.duration,
                id=execution.place.id,
                scope=execution.place.scope,
                iteration=execution.iteration,
                inputs=_signature(execution.inputs.shapes, execution.inputs.dtypes),
                outputs=_signature(execution.outputs.shapes, execution.outputs.dtypes),
            )
            if execution.allocated is not None:
                at = (execution.start + execution.duration) / 1000
                self._event(ph="C", name="memory", ts=at, args={"allocated": execution.allocated})

    def flush(self) -> None:
        """End the modules that are open, and bring the file up to date."""
        with self._lock:
            for row in self._rows.values():
                self._leave(row, 0)
            self._log.flush()

    def _row(self, direction: Direction) -> _Row:
        key = (direction, threading.get_ident())
        if key not in self._rows:
            row = self._rows[key] = _Row(len(self._rows) + 1)
            others = sum(other == direction for other, _ in self._rows)
            name = direction if others == 1 else f"{direction}, thread {others}"
            self._metadata("thread_name", row.number, name=name)
            self._metadata("thread_sort_index", row.number, sort_index=row.number)
        return self._rows[key]

    def _enter(self, row: _Row, execution: Execution) -> None:
        """Have exactly the modules open that the operator is in."""
        scope = execution.place.modules
        start, end = execution.start, execution.start + execution.duration
        depth = 0
        if execution.place.id in row.met:
            row.met.clear()
        else:
            for module, name in zip(row.open, scope, strict=False):
                if module.name != name:
                    break
                depth += 1
        row.met.add(execution.place.id)
        self._leave(row, depth)
        for module in row.open:
            module.start = min(module.start, start)  # it began before what ran inside it
            module.end = max(module.end, end)
        row.open += (_Slice(name, start, end) for name in scope[depth:])

    def _leave(self, row: _Row, depth: int) -> None:
        for level in reversed(range(depth, len(row.open))):
            module = row.open[level]
            scope = ".".join(m.name for m in row.open[: level + 1])
            duration = module.end - module.start
            self._slice(row, module.name, "module", module.start, duration, scope=scope)
        del row.open[depth:]

    def _slice(
        self, row: _Row, name: str, category: str, start: int, duration: int, **args: Any
    ) -> None:
        self._event(
            ph="X",
            tid=row.number,
            name=name,
            cat=category,
            ts=start / 1000,
            dur=duration / 1000,
            args=args,
        )

    def _metadata(self, what: str, row: int = 0, **args: Any) -> None:
        self._event(ph="M", tid=row, name=what, args=args)

    def _event(self, **fields: Any) -> None:
        self._log.write(json.dumps({"pid": self._process, **fields}))


def _signature(shapes: list[list[int | None] | None], dtypes: list[str | None]) -> list[str]:
    """Tensors as ``float32[8, 128]``."""
    return [
        "none" if shape is None else f"{dtype}{shape}"
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
