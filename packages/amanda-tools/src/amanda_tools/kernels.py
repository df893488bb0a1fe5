"""The tool ``Kernels`` tells what each operator had its devices do, by the framework's profiler."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import amanda

from amanda_tools.charts import bars
from amanda_tools.formats import Saving
from amanda_tools.pictures import Pictured
from amanda_tools.place import Place
from amanda_tools.report import Column, nanoseconds
from amanda_tools.tables import table_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from amanda.driving import Profiler
    from rich.console import RenderableType

    from amanda_tools.charts import Chart

_SHOWN = 10


@dataclass
class OperatorKernel:
    """This is a kernel of an operator.

    Attributes:
        id, type, scope: the operator; a backward operator if the direction is ``backward``.
        direction: ``forward`` or ``backward``.
        operator: the id of the forward operator that it belongs to.
        kernel: its name: of a GPU's kernel, or of what ran on the host.
        device: where it ran, as the profiler names it.
        launches: how often it ran.
        time: nanoseconds, all of them together; on the host without what ran inside of it.
    """

    id: str
    type: str
    scope: str
    direction: str
    operator: str
    kernel: str
    device: str
    launches: int = 0
    time: int = 0


class Kernels(Pictured[OperatorKernel], Saving[OperatorKernel], amanda.Tool):
    """Tells which kernels each operator launched, and what they took.

    It has the framework's own profiler record the scope: ``torch.profiler``, with CUPTI on NVIDIA's
    GPUs, or ``tf.profiler``. That keeps all it records in memory until the scope is left, so that a
    few steps are best. The program cannot use the same profiler at the same time.

    Args:
        out: a file to write when the scope is left, a row for each kernel of each operator, as
            JSON (with the totals) or CSV, or a picture (.svg), by its ending.

    Raises:
        OSError: it cannot be written there.
        ValueError: its name ends in something else.
    """

    innermost = True
    row_type = OperatorKernel
    rows_name = "kernels"
    keys = ("id", "kernel", "device")
    merges = MappingProxyType({"time": "mean", "launches": "sum"})
    units = MappingProxyType({"time": "nanoseconds"})
    sums = MappingProxyType({"time": "Kernels", "launches": "Launches"})

    def __init__(self, out: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self.save_to(out)
        self._watched: list[tuple[Place, Place, str]] = []
        self._profilers: dict[amanda.Driver, Profiler] = {}
        self._rows: dict[tuple[Place, str, str], OperatorKernel] = {}
        self._forward: dict[tuple[Place, str, str], Place] = {}
        self.add_inst_for_op(self._watch, opt_in=True)
        self.add_inst_for_op(self._watch, backward=True, keep_forward=False)

    def rows(self) -> list[OperatorKernel]:
        """Return the kernels of each operator; there are none before the scope is left."""
        return list(self._rows.values())

    def totals(self) -> Mapping[str, Any]:
        """Count the launches, and add up what they took."""
        rows = self._rows.values()
        return {"launches": sum(row.launches for row in rows), "time": sum(r.time for r in rows)}

    def found(self) -> str:
        """Tell how many launches there were, of how many operators."""
        total = self.totals()
        operators = {row.id for row in self._rows.values()}
        took = nanoseconds(total["time"])
        return f"{total['launches']:,} launches by {len(operators):,} operators, {took}"

    def columns(self) -> Sequence[Column]:
        """Return times and launches by forward operator, to show beside those of other tools."""
        times: dict[Place, int] = {}
        launches: dict[Place, int] = {}
        for key, row in self._rows.items():
            place = self._forward[key]
            times[place] = times.get(place, 0) + row.time
            launches[place] = launches.get(place, 0) + row.launches
        columns = [Column("Kernels", times, "nanoseconds"), Column("Launches", launches)]
        return columns if times else []

    def charts(self) -> list[Chart]:
        """Draw what the kernels of each operator took."""
        times: dict[str, float] = {}
        for row in self._rows.values():
            times[row.id] = times.get(row.id, 0) + row.time / 1e6
        return [bars("Milliseconds", {"ms": times})]

    def report(self) -> list[RenderableType]:
        """Show the kernels that took most, and tell how many there were."""
        said = self.and_saved(f"kernels: {self.found()}")
        rows = sorted(self._rows.values(), key=lambda row: -row.time)[:_SHOWN]
        titles = ("Kernel", "Operator", "Device", "Launches", "Time")
        cells = [(r.kernel, r.id, r.device, r.launches, nanoseconds(r.time)) for r in rows]
        return [table_of(titles, cells), said] if rows else [said]

    def on_exit(self) -> None:
        """Have the profilers stop, join what they recorded to operators, and write it."""
        while self._profilers:
            _, profiler = self._profilers.popitem()
            for kernel in profiler.stop():
                self._add(
                    *self._watched[int(kernel.key)], kernel.name, kernel.device
                ).time += kernel.duration
        super().on_exit()

    def _watch(self, ctx: amanda.OpContext) -> None:
        if ctx.driver not in self._profilers:
            profiler = ctx.driver.profiler()
            profiler.start()
            self._profilers[ctx.driver] = profiler
        state = ctx.state(self)
        if ctx.is_forward():
            place = forward = state["place"] = Place.at(ctx)
        else:
            forward = state.get("place") or Place.in_model(ctx)
            place = Place.of(ctx.backward_op or ctx.op)
        key = str(len(self._watched))
        self._watched.append((place, forward, "forward" if ctx.is_forward() else "backward"))
        self._profilers[ctx.driver].watch(ctx, key)

    def _add(
        self, place: Place, forward: Place, direction: str, kernel: str, device: str
    ) -> OperatorKernel:
        """Return the row of a kernel that was launched once more."""
        key = place, kernel, device
        if key not in self._rows:
            self._forward[key] = forward
            self._rows[key] = OperatorKernel(
                *(place.id, place.type, place.scope, direction, forward.id, kernel, device)
            )
        row = self._rows[key]
        row.launches += 1
        return row
