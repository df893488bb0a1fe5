"""Profile: where the time goes, and the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import amanda

from amanda_tools.chrome_trace import ChromeTrace
from amanda_tools.executions import Executions
from amanda_tools.report import EXECUTIONS, Column, nanoseconds

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from amanda_tools.executions import Execution
    from amanda_tools.place import Place


class Profile(amanda.Tool):
    """Time and memory per operator, forward and backward.

    Times are self times: they leave out operators that ran inside the operator, as those that a
    checkpoint runs again within backward. A backward operator's time counts for the forward
    operator that it belongs to. An optimizer's update is shown under the optimizer's class, beside
    the modules. Memory is what an operator left allocated on an accelerator;
    the host does not tell.

    Args:
        out: a Chrome trace to write, which https://ui.perfetto.dev opens.

    Attributes:
        forward: nanoseconds spent in forward executions, by operator.
        backward: nanoseconds spent in backward executions, by forward operator.
        memory: bytes of accelerator memory that forward executions left allocated, by operator.
        executions: how many forward executions there were, by operator.
    """

    def __init__(self, out: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self._chrome = None if out is None else ChromeTrace(out)
        self.executed = 0
        self.forward: dict[Place, int] = {}
        self.backward: dict[Place, int] = {}
        self.memory: dict[Place, int] = {}
        self.executions: dict[Place, int] = {}
        self.depends_on(Executions)
        self.add_inst_for_op(self._analyze, opt_in=True)
        self.add_inst_for_op(self._analyze, backward=True)

    @property
    def time(self) -> int:
        """Nanoseconds spent in operators."""
        return sum(self.forward.values()) + sum(self.backward.values())

    def open(self) -> None:
        """Make the file, which the first execution does otherwise.

        Raises:
            OSError: it cannot be written.
        """
        if self._chrome is not None:
            self._chrome.open()

    def on_exit(self) -> None:
        """Bring the file up to date."""
        if self._chrome is not None:
            self._chrome.flush()

    def columns(self) -> Sequence[Column]:
        """Time, and memory where the device told."""
        total = self.time or 1
        share = {
            place: (self.forward.get(place, 0) + self.backward.get(place, 0)) / total
            for place in {**self.forward, **self.backward}
        }
        columns = [
            Column("Forward", self.forward, "nanoseconds"),
            Column("Backward", self.backward, "nanoseconds"),
            Column("Memory", self.memory, "bytes"),
            Column("Share", share, "share"),
            Column(EXECUTIONS, self.executions, detail=True),
        ]
        return [column for column in columns if column.values]

    def report(self) -> str:
        """How much was measured, and where it was written."""
        summary = f"profile: {nanoseconds(self.time)} in {self.executed:,} executions"
        if self.executed:
            overhead = self.dependency(Executions).overhead
            summary += f", and {nanoseconds(overhead)} for measuring them"
        if self._chrome is not None:
            summary += f"; {self._chrome.state} opens in https://ui.perfetto.dev"
        return summary

    def _analyze(self, ctx: amanda.OpContext) -> None:
        self.dependency(Executions).observe(ctx, self._record)

    def _record(self, execution: Execution) -> None:
        place = execution.forward
        times = self.forward if execution.direction == "forward" else self.backward
        times[place] = times.get(place, 0) + execution.self_time
        if execution.direction == "forward":
            self.executions[place] = self.executions.get(place, 0) + 1
            if execution.kept is not None:
                self.memory[place] = self.memory.get(place, 0) + execution.kept
        self.executed += 1
        if self._chrome is not None:
            self._chrome.add(execution)
