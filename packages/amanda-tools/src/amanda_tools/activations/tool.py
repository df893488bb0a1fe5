"""The tool ``Activations`` looks at what operators and modules return."""

from __future__ import annotations

import threading
from collections.abc import Sequence  # noqa: TC003 - the command converts options by it
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import amanda

from amanda_tools.activations.captured import Captured
from amanda_tools.activations.moments import Moments
from amanda_tools.activations.tensor_file import ENDINGS, TensorFile
from amanda_tools.charts import bars
from amanda_tools.formats import Saving, ending_of
from amanda_tools.pictures import Pictured
from amanda_tools.tables import table_of

if TYPE_CHECKING:
    import os

    from rich.console import RenderableType

    from amanda_tools.activations.captured import Array
    from amanda_tools.charts import Chart

_SHOWN = 20


@dataclass
class Activation:
    """An activation has the statistics of one output of an operator or module, over all executions.

    Attributes:
        id, type, scope: the operator; of a module its path, with its class.
        output: which of its outputs.
        executions: how many there were.
        elements: of all of them together.
        mean, std, least, most: of the finite ones; None where there are none.
        zeros: the share of elements that are 0.
        not_finite: how many are infinite or NaN.
    """

    id: str
    type: str
    scope: str
    output: int
    executions: int
    elements: int
    mean: float | None
    std: float | None
    least: float | None
    most: float | None
    zeros: float
    not_finite: int


class Activations(Pictured[Activation], Saving[Activation], amanda.Tool):
    """Gathers statistics of what operators or modules return, and captures it if that is asked for.

    Statistics are computed as the model runs, in double precision, and take room for a few numbers.
    What is captured goes to a file at once, so that memory holds one tensor at a time; that of
    several executions is put together along the first axis where it fits.

    Args:
        ops: types of operators, all by default.
        scopes: globs of the scopes of operators.
        modules: globs of the paths of modules, whose outputs are looked at instead of operators'.
        capture: how many examples to keep of each output, along the first axis. By default all if
            the file holds tensors, and none otherwise.
        out: a file to write when the scope is left, by its ending: statistics (.json, .csv),
            a picture of them (.svg), or what was captured (.npz, .safetensors).
        namespace: the vocabulary of types, and the layout of what is captured; ``onnx`` for the
            portable one.

    Raises:
        OSError: it cannot be written there.
        ValueError: its name ends in something else, ``capture`` is less than 1, or operators and
            modules are asked for.
    """

    row_type = Activation
    rows_name = "activations"
    units = MappingProxyType({"zeros": "share"})

    def __init__(
        self,
        ops: Sequence[str] | None = None,
        scopes: Sequence[str] | None = None,
        modules: Sequence[str] | None = None,
        capture: int | None = None,
        out: str | os.PathLike[str] | None = None,
        namespace: str | None = None,
    ) -> None:
        super().__init__(namespace=namespace)
        if modules is not None and (ops is not None or scopes is not None):
            raise ValueError("name operators by ops and scopes, or modules, not both")
        if capture is not None and capture < 1:
            raise ValueError(f"capture is {capture}, and has to be 1 or more")
        ending = None if out is None else ending_of(out, (*self.endings, *ENDINGS))
        self._file = TensorFile(out) if out is not None and ending in ENDINGS else None
        self.save_to(None if self._file else out)
        self._of_modules = modules is not None
        self._captured = Captured(capture) if self._file or capture is not None else None
        self._moments: dict[tuple[str, str, str, int], Moments] = {}
        self._lock = threading.Lock()
        if modules is None:
            self.add_inst_for_op(self._look, ops=ops, scopes=scopes, require_outputs=True)
        else:
            self.add_inst_for_module(self._look, modules=modules, require_outputs=True)

    def rows(self) -> list[Activation]:
        """Return the statistics of each output of an operator or module."""
        return [Activation(*place, **m.numbers()) for place, m in self._moments.items()]

    def captures(self) -> dict[str, Array]:
        """Return captured tensors, by id or module path; ``id:1`` is an operator's second output.

        Where executions do not fit together they are apart: ``id/0``, ``id/1``.
        """
        parts = [] if self._captured is None else self._captured.parts()
        return {part.name: part.array() for part in parts}

    def found(self) -> str:
        """Tell how many outputs were looked at."""
        executions = sum(moments.executions for moments in self._moments.values())
        return f"{len(self._moments):,} outputs in {executions:,} executions"

    def charts(self) -> list[Chart]:
        """Draw the standard deviation of each output, and how much of it is zero."""
        rows = {_name(row.id, row.output): row for row in self.rows()}
        spread = {name: row.std for name, row in rows.items() if row.std is not None}
        zeros = {name: row.zeros for name, row in rows.items()}
        return [bars("Standard deviation", {"std": spread}), bars("Zeros", {"share": zeros})]

    def report(self) -> list[RenderableType]:
        """Show the first outputs as a table."""
        titles = ("Output", "Mean", "Std", "Least", "Most", "Zeros", "Not finite")
        rows = self.rows()
        shown = (
            (_name(r.id, r.output), r.mean, r.std, r.least, r.most, r.zeros, r.not_finite)
            for r in rows[:_SHOWN]
        )
        rest = f"; the first {_SHOWN} are shown" if len(rows) > _SHOWN else ""
        where = f", captured in {self._file.state}" if self._file else ""
        if self._captured and self._captured.trouble:
            where += f", until there was trouble: {self._captured.trouble}"
        return [f"activations: {self.found()}{where}{rest}", table_of(titles, shown)]

    def open(self) -> None:
        """Make the file, which leaving the scope does otherwise.

        Raises:
            OSError: it cannot be written.
        """
        super().open()
        if self._file:
            self._file.open()

    def on_exit(self) -> None:
        """Bring the file up to date."""
        super().on_exit()
        if self._file and self._captured:
            self._file.save(self._captured.parts())

    def _look(self, ctx: amanda.OpContext) -> None:
        op = ctx.op
        if op.opt_in or ctx.driver.purpose(op) != "model":
            return
        chosen = [
            index
            for index, tensor in enumerate(ctx.outputs)
            if tensor is not None and ctx.describe(tensor).dtype.startswith(("float", "bfloat"))
        ]
        if chosen:
            places = [(op.id, op.type, op.scope, index) for index in chosen]
            ctx.insert_after_op(self._keep, outputs=chosen, ctx=ctx, places=places)

    def _named(self, id: str, type: str, scope: str, output: int) -> str:
        """Return the name to capture a tensor by: an operator's id, or a module's path."""
        name = scope + id.removeprefix(f"{scope}/{type}") if self._of_modules else id
        return _name(name, output)

    def _keep(
        self, *tensors: Any, ctx: amanda.OpContext, places: list[tuple[str, str, str, int]]
    ) -> None:
        for place, tensor in zip(places, tensors, strict=True):
            array = ctx.numpy(tensor)
            with self._lock:
                moments = self._moments.get(place)
                if moments is None:
                    moments = self._moments[place] = Moments()
                moments.add(array)
                if self._captured is not None:
                    self._captured.add(self._named(*place), array)


def _name(id: str, output: int) -> str:
    return f"{id}:{output}" if output else id
