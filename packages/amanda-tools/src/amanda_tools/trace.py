"""The tool ``Trace`` writes a row for each execution."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import amanda

from amanda_tools.executions import Executions
from amanda_tools.findings import Findings
from amanda_tools.trace_file import TraceRow, read_trace, trace_file

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence


class Trace(amanda.Tool, Findings[TraceRow]):
    """Writes a row for each execution, forward and backward, in the order they end.

    Fields are those of :class:`TraceRow`. :func:`read_trace` reads it back.

    Args:
        out: the file to write: JSON Lines (.jsonl), JSON (.json) or CSV (.csv, in which lists are
            JSON), by its ending.

    Raises:
        OSError: it cannot be written there.
        ValueError: its name ends in something else.
    """

    row_type = TraceRow
    rows_name = "executions"
    units = MappingProxyType({"start": "nanoseconds", "duration": "nanoseconds"})

    def __init__(self, out: str | os.PathLike[str]) -> None:
        super().__init__()
        self._file = trace_file(out)
        self.depends_on(Executions)
        self.add_inst_for_op(self._analyze)
        self.add_inst_for_op(self._analyze, backward=True, keep_forward=False)

    def open(self) -> None:
        """Make the file, which the first execution does otherwise.

        Raises:
            OSError: it cannot be written.
        """
        self._file.open()

    def on_exit(self) -> None:
        """Bring the file up to date."""
        self._file.flush()

    def rows(self) -> Sequence[TraceRow]:
        """Return the executions, as they are in the file."""
        self._file.flush()
        return [TraceRow(**row) for row in read_trace(self._file.path)]

    def found(self) -> str:
        """Tell how many executions were recorded, and where."""
        return f"{self._file.added:,} executions in {self._file.state}"

    def report(self) -> str:
        """Tell what was written, and where."""
        return f"trace: {self.found()}"

    def _analyze(self, ctx: amanda.OpContext) -> None:
        self.dependency(Executions).observe(ctx, self._file.write)
