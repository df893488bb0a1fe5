"""The tool ``Flops`` tells how much a model computes and moves, by operator and module."""

from __future__ import annotations

import copy
import itertools
import threading
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import amanda

from amanda_tools.flops.counter import Call, Counted, Counter, OperatorFlops, Thread, elements_of
from amanda_tools.flops.registry import tables
from amanda_tools.flops.table import Table
from amanda_tools.formats import Saving
from amanda_tools.numbering import Numbering
from amanda_tools.place import Place, paths
from amanda_tools.report import EXECUTIONS, Column, count

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence


@dataclass
class TotalFlops:
    """This has sums over operators; see :class:`OperatorFlops`.

    Attributes:
        operators: how many there are.
        params: elements of the parameters that they are given, each parameter counted once.
        uncounted: executions whose FLOPs no formula tells, by operator type.
        uncounted_backward: gradients that no formula tells, by operator type.
        uncounted_tangents: executions in forward mode that are counted without tangents, likewise.
    """

    operators: int = 0
    calls: int = 0
    forward: int = 0
    backward: int = 0
    macs: int = 0
    params: int = 0
    bytes: int = 0
    uncounted: dict[str, int] = field(default_factory=dict)
    uncounted_backward: dict[str, int] = field(default_factory=dict)
    uncounted_tangents: dict[str, int] = field(default_factory=dict)

    @property
    def flops(self) -> int:
        """Return all FLOPs, forward and backward."""
        return self.forward + self.backward


class _Calls(amanda.Tool):
    """This part of ``Flops`` sees all operators that the program calls."""

    def __init__(self, analyze: Callable[[amanda.OpContext], None]) -> None:
        super().__init__()
        self.add_inst_for_op(analyze)

    @property
    def name(self) -> str:
        """Return the name of the tool that it is a part of."""
        return Flops.__name__


class Flops(Saving[OperatorFlops], amanda.Tool):
    """Counts FLOPs, multiply-adds, parameters and bytes, by operator and module.

    FLOPs are those of contractions: products of matrices, convolutions, attention; two for each
    multiply-add. That is the convention of ``torch.utils.flop_counter``, whose totals are the
    same but for the gradients of grouped convolutions, which it takes for those of plain ones.
    Operators that run inside of another one (``addmm`` in ``lstm``) count for the outer
    one. Operators that only move data have no FLOPs. All others, also additions, activations and
    normalizations, are listed as uncounted until somebody gives a :func:`formula`; what they cost
    is the bytes that they move. Gradients are counted where they flow, those of gradients not. In
    forward mode (``torch.func.jvp``) tangents are not counted, and operators listed that may have
    some; of TensorFlow's ``ForwardAccumulator`` nothing tells.

    Everything comes from the shapes at each execution; attributes (as whether a convolution is
    transposed) are taken from the first one.

    Args:
        out: a file to write when the scope is left, a row for each operator, as JSON (with the
            totals) or CSV by its ending.

    Raises:
        OSError: it cannot be written there.
        ValueError: its name ends in something else.
    """

    lists_candidates = True
    row_type = OperatorFlops
    keys = ("id", "purpose")
    merges = MappingProxyType(
        {
            **dict.fromkeys(("forward", "backward", "flops", "macs", "bytes", "calls"), "sum"),
            **dict.fromkeys(("uncounted", "uncounted_backward", "uncounted_tangents"), "sum"),
            "params": "mean",  # each process has all of them, or its shard
        }
    )
    units = MappingProxyType({"bytes": "bytes"})
    sums = MappingProxyType(  # without parameters, which operators may share
        {
            "forward": "FLOPs",
            "backward": "Backward FLOPs",
            "bytes": "Moved",
            "calls": EXECUTIONS,
        }
    )

    def __init__(self, out: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self.save_to(out)
        self._rows: dict[Place, OperatorFlops] = {}
        self._parameters: dict[Place, dict[int, int]] = {}
        self._awaited: dict[Place, Counted] = {}
        self._numbers = Numbering()
        self._thread = Thread()
        self._lock = threading.Lock()
        counted = [type for table in tables().values() for type in table.formulas]
        closed = [type for table in tables().values() for type in table.closed]
        # Two tools, since one that takes an operator as a whole does not see what runs inside.
        self.depends_on(_Calls(self._analyze))
        self.add_inst_for_op(self._analyze_formula, ops=counted)
        self.add_inst_for_op(self._take_whole, ops=closed)
        self.add_inst_for_gradient(self._analyze_gradient, ops=counted)

    # What was counted

    def rows(self) -> list[OperatorFlops]:
        """Return what each operator did, in the order in which they first ran."""
        return [copy.copy(row) for row in self._rows.values()]

    def totals(self) -> Mapping[str, Any]:
        """Return the sum over all operators, as plain values."""
        total = self.total()
        return {"flops": total.flops, **asdict(total)}

    def total(self) -> TotalFlops:
        """Return the sum over all operators."""
        return self._sum(self._rows)

    def by_type(self) -> dict[str, TotalFlops]:
        """Return the sums over the operators of each type."""
        groups: dict[str, list[Place]] = {}
        for place in self._rows:
            groups.setdefault(place.type, []).append(place)
        return {type: self._sum(places) for type, places in groups.items()}

    def by_module(self) -> dict[str, TotalFlops]:
        """Sum over what runs in each module, and in those inside of it, by the module's path.

        The path of everything is ``""``. Where several models ran that modules alone do not tell
        apart, paths begin with the model: its class, with ``#2`` for the second one of it.
        """
        groups: dict[str, list[Place]] = {"": list(self._rows)}
        for place, modules in paths(self._rows).items():
            for path in itertools.accumulate(modules, "{}.{}".format):
                groups.setdefault(path, []).append(place)
        return {path: self._sum(places) for path, places in groups.items()}

    def next_execution(self, place: Place) -> Counted:
        """Return what the next execution of an operator counts; its end fills it in."""
        row = self._rows[place]
        counted = self._awaited[place] = Counted(row.forward, row.macs)
        return counted

    def columns(self) -> Sequence[Column]:
        """Return FLOPs, parameters and bytes, for a table beside those of other tools.

        A parameter that several operators share is shown at the first of them.
        """
        columns = [
            Column("FLOPs", {place: row.forward for place, row in self._rows.items()}),
            Column("Backward FLOPs", {place: row.backward for place, row in self._rows.items()}),
            Column("Params", self._first_uses()),
            Column("Moved", self._moved(), "bytes", detail=True),
            Column(
                EXECUTIONS, {place: row.calls for place, row in self._rows.items()}, detail=True
            ),
        ]
        return [column for column in columns if any(column.values.values())]

    def found(self) -> str:
        """Tell the totals, and how many operators they are of."""
        total = self.total()
        return f"{_found(total)}, in {total.calls:,} calls of {total.operators:,} operators"

    def report(self) -> str:
        """Tell the totals, and what is not in them."""
        total = self.total()
        lines = [self.and_saved(f"flops: {_found(total)}")]
        if total.uncounted:
            lines.append(f"no formula: {_listed(total.uncounted)}")
        if total.uncounted_backward:
            lines.append(f"no formula for the gradient: {_listed(total.uncounted_backward)}")
        if total.uncounted_tangents:
            lines.append(f"tangents are not counted: {_listed(total.uncounted_tangents)}")
        return "\n".join(lines)

    def _sum(self, places: Iterable[Place]) -> TotalFlops:
        total = TotalFlops()
        parameters: dict[int, int] = {}
        for place in places:
            row = self._rows[place]
            total.operators += 1
            total.calls += row.calls
            total.forward += row.forward
            total.backward += row.backward
            total.macs += row.macs
            total.bytes += row.bytes
            parameters.update(self._parameters[place])
            for executions, missing in (
                (row.uncounted, total.uncounted),
                (row.uncounted_backward, total.uncounted_backward),
                (row.uncounted_tangents, total.uncounted_tangents),
            ):
                if executions:
                    missing[place.type] = missing.get(place.type, 0) + executions
        total.params = sum(parameters.values())
        return total

    def _moved(self) -> dict[Place, int]:
        return {place: row.bytes for place, row in self._rows.items()}

    def _first_uses(self) -> dict[Place, int]:
        seen: set[int] = set()
        first: dict[Place, int] = {}
        for place, parameters in self._parameters.items():
            first[place] = sum(size for number, size in parameters.items() if number not in seen)
            seen.update(parameters)
        return first

    # Analysis

    def _analyze(self, ctx: amanda.OpContext) -> None:
        """Count an operator that the program calls."""
        state = ctx.state(self)
        if "counts" not in state:
            state["counts"] = self._call(ctx)
        call = state["counts"]
        ctx.insert_before_op(call.begin)
        ctx.insert_after_op(call.end)

    def _analyze_formula(self, ctx: amanda.OpContext) -> None:
        """Count an operator that has a formula: the program calls it, or another operator does."""
        if ctx.op.opt_in:  # an optimizer's, which an analysis of all operators does not see
            self._analyze(ctx)
            return
        state = ctx.state(self)
        if "counts" not in state:
            state["counts"] = self._counter(ctx, self._thread.row or self._row(ctx))
        counter = state["counts"]
        if isinstance(counter, Call):
            return
        ctx.insert_before_op(counter.begin)
        ctx.insert_after_op(counter.end)

    def _take_whole(self, ctx: amanda.OpContext) -> None:
        """Have an operator that the program calls run whole: nobody need look inside of it."""

    def _analyze_gradient(self, ctx: amanda.OpContext) -> None:
        state = ctx.state(self)
        if "counts" not in state:  # the operator ran ahead of this scope
            state["counts"] = self._counter(ctx, self._row(ctx))
        known = state["counts"]
        counter = known if isinstance(known, Counter) else known.counter
        ctx.insert_on_grad_outputs(counter.on_grad_outputs)
        ctx.insert_on_grad_inputs(counter.on_grad_inputs)

    def _call(self, ctx: amanda.OpContext) -> Call:
        row, table = self._row(ctx), self._table(ctx)
        counter = self._counter(ctx, row) if ctx.op.type in table.formulas else None

        def ended() -> None:
            if self._awaited:
                counted = self._awaited.pop(row.place, None)
                if counted is not None:
                    counted.end(row)

        return Call(row, counter, table, ctx.driver.describe, self._thread, self._lock, ended)

    def _counter(self, ctx: amanda.OpContext, row: OperatorFlops) -> Counter:
        table = self._table(ctx)
        formula = table.formulas[ctx.op.type]
        return Counter(row, formula, ctx.attrs, ctx.driver, self._thread, self._lock)

    def _row(self, ctx: amanda.OpContext) -> OperatorFlops:
        place, table = Place.at(ctx), self._table(ctx)
        parameters = self._parameters.setdefault(place, {})
        # What works in place gives its first input values; a view is used by what it is given to.
        first = len(ctx.inputs) if ctx.op.type in table.views else ctx.op.type.endswith("_")
        for index in range(first, len(ctx.inputs)):
            parameter = None if ctx.inputs[index] is None else ctx.parameter(index)
            if parameter is not None:
                parameters[self._numbers.of(parameter.source)] = elements_of(parameter)
        row = self._rows.setdefault(place, OperatorFlops(*place[:4], model=place.model))
        row.params = sum(parameters.values())
        return row

    def _table(self, ctx: amanda.OpContext) -> Table:
        return tables().get(self.vocabulary or ctx.op.backend, _NOTHING)


_NOTHING = Table()


def _found(total: TotalFlops) -> str:
    return (
        f"{count(total.forward)} forward, {count(total.backward)} backward, "
        f"{count(total.params)} parameters"
    )


def _listed(executions: Mapping[str, int]) -> str:
    ranked = sorted(executions, key=lambda type: -executions[type])
    return ", ".join(f"{type} ({executions[type]:,})" for type in ranked)
