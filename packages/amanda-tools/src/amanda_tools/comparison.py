"""A comparison of two runs tells the first operator that differs, and errors by layer."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING, Any

from amanda_tools.charts import bars
from amanda_tools.distance import LEAST_ROUNDING, bytes_equal, distance, is_over, rounding
from amanda_tools.pictures import Pictured
from amanda_tools.tables import table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda_tools.charts import Chart
    from amanda_tools.compiled import CompiledCode

_SHOWN = 30
_RESULT = "(result)"
_OUTSIDE = ("(own operators)", _RESULT)  # titles for what is in no layer


@dataclass
class Difference:
    """A difference is between a tensor of one run and its counterpart in the other run.

    Attributes:
        id, type, scope, source: the operator in the first run.
        other: the id in the second run.
        direction, tensor, iteration: as they were recorded; see :class:`Recorded`.
        dtype, other_dtype: of the tensors.
        absolute: the largest difference of two values that were recorded.
        relative: the norm of all differences of these, by that of the values of the first run.
        allowed: the relative difference that is taken for none; 0 where bytes have to be equal.
        differs: whether it is more than that.
        compared: ``digest`` if all bytes are equal, else ``values``, or ``statistics`` where the
            tensors are laid out differently; ``shape`` where they cannot be compared; ``compiled``
            for an operator that compiled code of a run computes otherwise than it does by itself.
    """

    id: str
    type: str
    scope: str
    source: str | None
    other: str
    direction: str
    tensor: str
    iteration: int
    dtype: str
    other_dtype: str
    absolute: float
    relative: float
    allowed: float
    differs: bool
    compared: str


class Comparison(Pictured[Difference]):
    """A comparison goes through two runs tensor by tensor, in the order of the first one.

    Attributes:
        only_first, only_second: the ids of operators that the other run has no counterpart of.
        notes: what else is to be said.
    """

    row_type = Difference
    rows_name = "tensors"

    def __init__(
        self,
        differences: Sequence[Difference],
        only_first: Sequence[str] = (),
        only_second: Sequence[str] = (),
    ) -> None:
        self._differences = list(differences)
        self.notes: list[str] = []
        self.only_first, self.only_second = list(only_first), list(only_second)

    def add_compiled(self, code: CompiledCode) -> None:
        """Add the first operator that compiled code of a run computes otherwise, behind all."""
        self._differences.append(
            Difference(
                *(code.id, code.type, code.scope, code.source, code.id, code.direction, "0", 0),
                *(code.dtype, code.dtype, code.absolute, code.relative, code.allowed),
                differs=True,
                compared="compiled",
            )
        )

    def add_results(
        self, one: Any, other: Any, rtol: float | None, is_compiled: bool = False
    ) -> None:
        """Compare what the programs themselves return, behind all operators.

        By default as much is allowed as at any operator, and rounding where code was compiled.
        """
        equal = bytes_equal(one, other)
        absolute, relative = distance(one, other)
        most = max((row.allowed for row in self._differences), default=LEAST_ROUNDING)
        if is_compiled:
            most = max(most, rounding(str(one.dtype), str(other.dtype)))
        allowed = most if rtol is None else rtol
        result = Difference(
            id=_RESULT,
            type=_RESULT,
            scope="",
            source=None,
            other=_RESULT,
            direction="forward",
            tensor="0",
            iteration=0,
            dtype=str(one.dtype),
            other_dtype=str(other.dtype),
            absolute=absolute,
            relative=relative,
            allowed=allowed,
            differs=not equal and is_over(relative, allowed),
            compared="digest" if equal else "values",
        )
        self._differences.append(result)

    def rows(self) -> list[Difference]:
        """Return the tensors that were compared."""
        return list(self._differences)

    def first(self) -> Difference | None:
        """Return the first tensor that differs; None if none does."""
        return next((row for row in self._differences if row.differs), None)

    def totals(self) -> dict[str, Any]:
        """Count the tensors that were compared, and those that differ."""
        differ = sum(row.differs for row in self._differences)
        lone = {"only_first": len(self.only_first), "only_second": len(self.only_second)}
        return {"compared": len(self._differences), "differ": differ, **lone}

    def by_layer(self) -> dict[str, list[Difference]]:
        """Return the tensors by the scope of their operators, in the order of the first run.

        Those in no scope are under ``(own operators)``, what programs return under ``(result)``.
        """
        layers: dict[str, list[Difference]] = {}
        for row in self._differences:
            layers.setdefault(row.scope or _OUTSIDE[row.id == _RESULT], []).append(row)
        return layers

    def found(self) -> str:
        """Tell the first operator that differs, or that none does."""
        total = self.totals()
        first = self.first()
        if not self._differences:
            return "nothing was compared: no tensor of either run is one of the other"
        if first is None:
            return f"none of {total['compared']:,} tensors differs"
        where = f" ({first.source})" if first.source else ""
        gradient = f" in its gradient of {first.tensor}" if first.direction == "backward" else ""
        return (
            f"{first.id}{where} is the first of {total['differ']:,} tensors that differ, of "
            f"{total['compared']:,}{gradient}: by {first.relative:.3g} relative, "
            f"{first.absolute:.3g} at most"
        )

    def charts(self) -> list[Chart]:
        """Draw the largest relative error in each layer."""
        errors = {
            layer: max(row.relative for row in rows) for layer, rows in self.by_layer().items()
        }
        return [bars("Relative error of each layer", {"error": errors})]

    def report(self) -> list[Any]:
        """Show the layers with errors as a table, and tell the first operator that differs."""
        layers = self.by_layer()
        wrong = [(name, rows) for name, rows in layers.items() if any(r.relative for r in rows)]
        titles = ("Layer", "Tensors", "Differ", "Relative", "Absolute", "First that differs")
        shown: list[Any] = [table_of(titles, starmap(_errors_of, wrong[:_SHOWN]))] if wrong else []
        if len(wrong) > _SHOWN:
            shown.append(f"... and {len(wrong) - _SHOWN:,} more layers with errors")
        if wrong and len(wrong) < len(layers):
            shown.append(f"{len(layers) - len(wrong):,} layers without errors")
        shown.append(f"compare: {self.found()}")
        for ids, which in ((self.only_first, "first"), (self.only_second, "second")):
            if ids:
                some = ", ".join(ids[:5]) + (", ..." if len(ids) > 5 else "")
                shown.append(f"only in the {which} run: {len(ids):,} operators: {some}")
        return [*shown, *self.notes]


def _errors_of(name: str, rows: Sequence[Difference]) -> tuple[object, ...]:
    """Return a layer's row of the table."""
    return (
        *(name, len(rows), sum(row.differs for row in rows)),
        *(max(row.relative for row in rows), max(row.absolute for row in rows)),
        next((row.id for row in rows if row.differs), None),
    )
