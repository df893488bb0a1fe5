"""The tool ``Profile`` tells where the time goes, and the memory."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import amanda
from rich.text import Text

from amanda_tools.chrome_trace import ChromeTrace
from amanda_tools.executions import Executions
from amanda_tools.formats import Saving, ending_of
from amanda_tools.notice import printable
from amanda_tools.report import EXECUTIONS, Column, Report, nanoseconds
from amanda_tools.times import Times

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from typing import Any

    from rich.console import RenderableType

    from amanda_tools.execution import Execution
    from amanda_tools.place import Place


@dataclass
class OperatorProfile:
    """This is the time that one operator took; all times are nanoseconds.

    Attributes:
        id, type, scope: the operator.
        purpose: what it is there for: ``model``, ``optimizer``, ``data`` or ``initialization``.
        source: file and line of the program's code that runs it, or made its node of a graph; None
            if nobody can tell.
        calls: how many forward executions there were.
        forward: all of them together.
        mean, median, least, most: of one of them; None if there are none.
        backward_calls: how many executions of its backward operators there were.
        backward: all of them together.
        backward_mean, backward_median, backward_least, backward_most: of one of them.
        warmup: forward and backward executions of the warm-up, which are in no other number.
        memory: bytes of an accelerator's memory that forward executions left allocated; None on
            the host.
    """

    id: str
    type: str
    scope: str
    purpose: str
    source: str | None
    calls: int
    forward: int
    mean: float | None
    median: float | None
    least: int | None
    most: int | None
    backward_calls: int
    backward: int
    backward_mean: float | None
    backward_median: float | None
    backward_least: int | None
    backward_most: int | None
    warmup: int
    memory: int | None


# Forward executions and what one of them took, and all together with those of the backward.
_SLOWEST = [
    Column("Total", {}, "nanoseconds"),
    Column("Calls", {}),
    Column("Mean", {}, "nanoseconds"),
    Column("Median", {}, "nanoseconds", detail=True),
    Column("Least", {}, "nanoseconds", detail=True),
    Column("Most", {}, "nanoseconds", detail=True),
]


def _slow(row: OperatorProfile) -> tuple[Text, list[float]]:
    one = (row.mean, row.median, row.least, row.most)
    total = row.forward + row.backward
    return Text(printable(row.id)), [total, row.calls, *(number or 0 for number in one)]


class _Measured:
    """This is what was measured at one operator."""

    def __init__(self, source: str | None) -> None:
        self.source = source
        self.forward = Times()
        self.backward = Times()
        self.warmup = 0
        self.memory: int | None = None


class Profile(Saving[OperatorProfile], amanda.Tool):
    """Measures time and memory of each operator, forward and backward.

    Times are self times: they leave out operators that ran inside the operator, as those that a
    checkpoint runs again within backward. A backward operator's time counts for the forward
    operator that it belongs to. An optimizer's update is shown under the optimizer's class, beside
    the modules. Memory is what an operator left allocated on an accelerator;
    the host does not tell.

    Args:
        out: a file to write: a Chrome trace (.json), which https://ui.perfetto.dev opens, or a
            row for each operator (.csv), by its ending.
        warmup: how many first executions of each operator to set apart: they are in the trace,
            and in no time but that of the warm-up.

    Raises:
        OSError: it cannot be written there.
        ValueError: its name ends in something else, or ``warmup`` is negative.
    """

    row_type = OperatorProfile
    keys = ("id", "purpose")
    merges = MappingProxyType(
        {
            **dict.fromkeys(("time", "forward", "backward", "warmup", "overhead"), "mean"),
            **dict.fromkeys(("mean", "median", "backward_mean", "backward_median"), "mean"),
            **dict.fromkeys(("least", "backward_least"), "least"),
            **dict.fromkeys(("most", "backward_most"), "most"),
            **dict.fromkeys(("calls", "backward_calls", "executions", "memory"), "sum"),
        }
    )

    units = MappingProxyType(
        {
            **dict.fromkeys(("forward", "mean", "median", "least", "most"), "nanoseconds"),
            **dict.fromkeys(("backward", "backward_mean", "backward_median"), "nanoseconds"),
            **dict.fromkeys(("backward_least", "backward_most", "warmup"), "nanoseconds"),
            "memory": "bytes",
        }
    )
    sums = MappingProxyType(
        {"forward": "Forward", "backward": "Backward", "memory": "Memory", "calls": EXECUTIONS}
    )

    def __init__(self, out: str | os.PathLike[str] | None = None, warmup: int = 0) -> None:
        if warmup < 0:
            raise ValueError(f"warmup is {warmup}, and has to be 0 or more")
        super().__init__()
        is_trace = out is not None and ending_of(out, (".json", ".csv")) == ".json"
        self._chrome = ChromeTrace(out) if out is not None and is_trace else None
        self.save_to(None if is_trace else out)
        self._warmup = warmup
        self._measured: dict[Place, _Measured] = {}
        self.depends_on(Executions)
        self.add_inst_for_op(self._analyze, opt_in=True)
        self.add_inst_for_op(self._analyze, backward=True, keep_forward=False)

    # What was measured

    @property
    def forward(self) -> dict[Place, int]:
        """Return the nanoseconds spent in forward executions, by operator."""
        return {p: m.forward.total for p, m in self._measured.items() if m.forward.count}

    @property
    def backward(self) -> dict[Place, int]:
        """Return the nanoseconds spent in backward executions, by forward operator."""
        return {p: m.backward.total for p, m in self._measured.items() if m.backward.count}

    @property
    def warmup(self) -> dict[Place, int]:
        """Return the nanoseconds spent in the executions of the warm-up, by forward operator."""
        return {p: m.warmup for p, m in self._measured.items() if m.warmup}

    @property
    def memory(self) -> dict[Place, int]:
        """Return the bytes of accelerator memory that forward executions left, by operator."""
        return {p: m.memory for p, m in self._measured.items() if m.memory is not None}

    @property
    def executions(self) -> dict[Place, int]:
        """Return how many forward executions there were, by operator."""
        return {p: m.forward.count for p, m in self._measured.items() if m.forward.count}

    @property
    def executed(self) -> int:
        """Count the executions, forward and backward, without those of the warm-up."""
        return sum(m.forward.count + m.backward.count for m in self._measured.values())

    @property
    def time(self) -> int:
        """Return the nanoseconds spent in operators, without the warm-up."""
        return sum(self.forward.values()) + sum(self.backward.values())

    def rows(self) -> list[OperatorProfile]:
        """Return what each operator took, in the order in which they first ran."""
        return [
            OperatorProfile(
                *place[:4],
                source=measured.source,
                calls=measured.forward.count,
                forward=measured.forward.total,
                mean=measured.forward.mean,
                median=measured.forward.median,
                least=measured.forward.least,
                most=measured.forward.most,
                backward_calls=measured.backward.count,
                backward=measured.backward.total,
                backward_mean=measured.backward.mean,
                backward_median=measured.backward.median,
                backward_least=measured.backward.least,
                backward_most=measured.backward.most,
                warmup=measured.warmup,
                memory=measured.memory,
            )
            for place, measured in self._measured.items()
        ]

    def slowest(self, number: int = 5) -> list[OperatorProfile]:
        """Return the operators that took most time, forward and backward."""
        return sorted(self.rows(), key=lambda row: -row.forward - row.backward)[:number]

    def totals(self) -> Mapping[str, Any]:
        """Return the times of all operators, as plain values."""
        return {
            "time": self.time,
            "executions": self.executed,
            "warmup": sum(self.warmup.values()),
            "overhead": self._overhead,
        }

    def found(self) -> str:
        """Tell the time of all operators, and of how many executions."""
        return f"{nanoseconds(self.time)} in {self.executed:,} executions"

    # What is written and shown

    def open(self) -> None:
        """Make the file, which the first execution does otherwise.

        Raises:
            OSError: it cannot be written.
        """
        super().open()
        if self._chrome is not None:
            self._chrome.open()

    def on_exit(self) -> None:
        """Bring the file up to date."""
        super().on_exit()
        if self._chrome is not None:
            if self.partial is not None:
                self._chrome.label(f"partial: {self.partial}")
            self._chrome.flush()

    def columns(self) -> Sequence[Column]:
        """Return time, and memory where the device reports it."""
        forward, backward = self.forward, self.backward
        total = self.time or 1
        share = {
            place: (forward.get(place, 0) + backward.get(place, 0)) / total
            for place in {**forward, **backward}
        }
        columns = [
            Column("Forward", forward, "nanoseconds"),
            Column("Backward", backward, "nanoseconds"),
            Column("Memory", self.memory, "bytes"),
            Column("Share", share, "share"),
            Column(EXECUTIONS, self.executions, detail=True),
        ]
        return [column for column in columns if column.values]

    def report(self) -> list[RenderableType]:
        """Show the slowest operators, where they are in the program, how much was measured, and
        where it was written.
        """
        summary = f"profile: {self.found()}"
        if self.executed:
            summary += f", and {nanoseconds(self._overhead)} for measuring them"
        if self._warmup:
            apart = nanoseconds(sum(self.warmup.values()))
            summary += f"; {apart} of warm-up are not in it"
        if self._chrome is not None:
            summary += f"; {self._chrome.state} opens in https://ui.perfetto.dev"
        summary = self.and_saved(summary)
        slowest = self.slowest()
        if not slowest:
            return [summary]
        lines = [f"{row.id}: {row.source}" for row in slowest if row.source is not None]
        said = ["\n".join(map(printable, lines)), summary] if lines else [summary]
        return [Report("Slowest", _SLOWEST, [_slow(row) for row in slowest]), *said]

    @property
    def _overhead(self) -> int:
        """Return the nanoseconds that measuring took: none before the first scope."""
        return sum(
            tool.overhead for tool in self.direct_dependencies() if isinstance(tool, Executions)
        )

    def _analyze(self, ctx: amanda.OpContext) -> None:
        self.dependency(Executions).observe(ctx, self.add)

    def add(self, execution: Execution) -> None:
        """Take one more execution."""
        kind = execution.kind
        measured = self._measured.get(kind.forward)
        if measured is None:
            measured = self._measured.setdefault(kind.forward, _Measured(kind.source))
        is_forward = kind.direction == "forward"
        if execution.iteration < self._warmup:
            measured.warmup += execution.self_time
        else:
            (measured.forward if is_forward else measured.backward).add(execution.self_time)
        if is_forward and execution.kept is not None:
            measured.memory = (measured.memory or 0) + execution.kept
        if self._chrome is not None:
            self._chrome.add(execution)
