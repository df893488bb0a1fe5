"""The tool ``Compiled`` tells what compiled code computes otherwise than its operators do."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import amanda

from amanda_tools.charts import bars
from amanda_tools.distance import bytes_equal, check_tolerance, distance, is_over, rounding
from amanda_tools.formats import Saving
from amanda_tools.pictures import Pictured
from amanda_tools.place import source_text
from amanda_tools.tables import table_of

if TYPE_CHECKING:
    import os

    from amanda.driving import Held
    from rich.console import RenderableType

    from amanda_tools.charts import Chart

_SHOWN = 30


@dataclass
class CompiledCode:
    """A piece of compiled code is reported with the first operator in it that differs.

    Attributes:
        id, type, scope: the first operator whose result differs; the last one if none does.
        source: file and line of the program's code that runs it; None if nobody can tell.
        operators: how many the piece has.
        differs: whether one differs.
        direction: ``forward``, or ``backward`` where its gradients are what differs.
        dtype: of the tensor that differs, as the rest is of it.
        absolute: the largest difference of two values.
        relative: the norm of all differences, by that of the values that are expected.
        allowed: the relative difference that is taken for none.
    """

    id: str
    type: str
    scope: str
    source: str | None
    operators: int
    differs: bool
    direction: str
    dtype: str
    absolute: float
    relative: float
    allowed: float


class Compiled(Pictured[CompiledCode], Saving[CompiledCode], amanda.Tool):
    """Names the first operator that compiled code computes otherwise than it does by itself.

    Under all other tools compiled code (``torch.compile``, ``jit_compile=True``) runs operator by
    operator. In the scope of this one, which is to be applied alone, it runs compiled. Each piece
    of it is run both ways at its first run, on copies of what it is given: what it returns, what it
    writes, and on PyTorch its gradients. Where they differ, the piece is compiled again as far as
    some operator, with what later ones read for its results, and the first operator with which
    these differ is found by halving. That takes a few compilations.

    Args:
        rtol: the relative difference that is allowed. By default it is what eight roundings of the
            type of data make, at least 1e-5.
        out: a file to write when the scope is left, a row for each piece of code, as JSON, CSV or a
            picture by its ending (.json, .csv, .svg).

    Raises:
        OSError: it cannot be written there.
        ValueError: its name ends in something else, or no such difference can be allowed.
    """

    row_type = CompiledCode
    rows_name = "pieces"

    def __init__(
        self, rtol: float | None = None, out: str | os.PathLike[str] | None = None
    ) -> None:
        super().__init__()
        check_tolerance(rtol)
        self.save_to(out)
        self._rtol = rtol
        self._rows: list[CompiledCode] = []
        self._holding = contextlib.ExitStack()

    def rows(self) -> list[CompiledCode]:
        """Return the pieces of compiled code, in the order in which they first ran."""
        return list(self._rows)

    def first(self) -> CompiledCode | None:
        """Return the first piece in which an operator differs; None if there is none."""
        return next((row for row in self._rows if row.differs), None)

    def totals(self) -> dict[str, Any]:
        """Count the pieces, the operators in them, and the pieces that differ."""
        operators = sum(row.operators for row in self._rows)
        differ = sum(row.differs for row in self._rows)
        return {"pieces": len(self._rows), "operators": operators, "differ": differ}

    def found(self) -> str:
        """Tell the first operator that differs, or that none does."""
        total, first = self.totals(), self.first()
        if not self._rows:
            return "no compiled code ran"
        if first is None:
            many = f"{total['pieces']:,} pieces of compiled code with {total['operators']:,}"
            return f"none of {many} operators differs from these one by one"
        where = f" ({first.source})" if first.source else ""
        what = "gradient" if first.direction == "backward" else "result"
        return (
            f"{first.id}{where} is the first operator whose {what} differs as it is compiled, of "
            f"{first.operators:,}: by {first.relative:.3g} relative, {first.absolute:.3g} at most"
        )

    def charts(self) -> list[Chart]:
        """Draw the relative error of each piece."""
        return [bars("Relative error", {"error": {row.id: row.relative for row in self._rows}})]

    def report(self) -> list[RenderableType]:
        """Tell the first operator that differs, with a table where several pieces differ."""
        differ = [row for row in self._rows if row.differs]
        shown: list[RenderableType] = []
        if len(differ) > 1:
            titles = ("First that differs", "Direction", "Operators", "Relative", "Absolute")
            cells = [
                (r.id, r.direction, r.operators, r.relative, r.absolute) for r in differ[:_SHOWN]
            ]
            shown.append(table_of(titles, cells))
        return [*shown, self.and_saved(f"compiled: {self.found()}")]

    def on_enter(self, driver: amanda.Driver) -> None:
        """Have compiled code compared with its operators from now on."""
        self._holding.enter_context(driver.hold_compiled(self._alike, self._tell))

    def on_exit(self) -> None:
        """Stop comparing, and write what was found."""
        self._holding.close()
        super().on_exit()

    def _allowed(self, dtype: str) -> float:
        return rounding(dtype) if self._rtol is None else self._rtol

    def _alike(self, expected: Any, found: Any, dtype: str) -> bool:
        if expected.dtype != found.dtype:
            return False
        return bytes_equal(expected, found) or not is_over(
            distance(expected, found)[1], self._allowed(dtype)
        )

    def _tell(self, held: Held) -> None:
        operator, absolute, relative = held.operator, 0.0, 0.0
        if held.expected is not None:
            absolute, relative = distance(held.expected, held.found)
        row = CompiledCode(
            id=operator.id,
            type=operator.type,
            scope=operator.scope,
            source=source_text(operator),
            operators=held.operators,
            differs=held.differs,
            direction=held.direction,
            dtype=held.dtype,
            absolute=absolute,
            relative=relative,
            allowed=self._allowed(held.dtype),
        )
        self._rows.append(row)
