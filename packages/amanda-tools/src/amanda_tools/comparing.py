"""Two runs of a program are compared: the first operator whose result differs, and by how much."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, starmap
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any, Literal

import amanda
import numpy as np

from amanda_tools.arrays import returned
from amanda_tools.charts import bars
from amanda_tools.compiled import Compiled
from amanda_tools.distance import LEAST_ROUNDING, check_tolerance, distance, is_over, rounding
from amanda_tools.matching import matched
from amanda_tools.pictures import Pictured
from amanda_tools.recording import Record, Recorded, Run, unpacked
from amanda_tools.tables import table_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

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
        equal = _bytes_equal(one, other)
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


def compare(
    run: Callable[[], Any],
    other: Callable[[], Any],
    *,
    rtol: float | None = None,
    values: int | Literal["all"] = 1024,
    iterations: int = 10,
    gradients: bool = False,
    ops: list[str] | None = None,
    scopes: list[str] | None = None,
) -> Comparison:
    """Run two programs, and tell the first operator whose result differs.

    Each is run twice, without tools and under them, and has to begin anew each time: with the same
    data, weights and random numbers. Where the results are others it is run once more, under
    :class:`amanda_tools.Compiled`, which names the first operator that compiled code computes
    otherwise.

    Args:
        run, other: what runs a program. If they return something, which NumPy has to take, it is
            compared as well, as it is without tools.
        rtol: the relative difference that is allowed. By default none, to the bit, between tensors
            of one type on one backend; else what eight roundings of the coarser type make, at least
            1e-5, and as much from there on.
        values, iterations, gradients, ops, scopes: as for :class:`amanda_tools.Record`.

    Raises:
        TypeError: NumPy does not take what one returns.
        ValueError: an option is out of range.
    """
    check_tolerance(rtol)
    records, results, notes, compiled = [], [], [], []
    for which, each in (("first", run), ("second", other)):
        record = Record(None, values, iterations, gradients, ops, scopes)
        plain = each()
        with amanda.apply(record):
            result = each()
        records.append(record.run())
        if plain is not None:
            results.append(returned(plain, f"the {which} run"))
            if not _bytes_equal(results[-1], returned(result, f"the {which} run")):
                tool = Compiled(rtol)
                with amanda.apply(tool):
                    each()
                compiled += tool.rows()
                notes.append(f"the {which} run gives other results without tools: {_why(tool)}")
    comparison = compare_records(*records, rtol=rtol)
    for code in (code for code in compiled if code.differs):
        comparison.add_compiled(code)
    if len(results) == 2:
        comparison.add_results(results[0], results[1], rtol, bool(compiled))
    comparison.notes += notes
    return comparison


def _why(tool: Compiled) -> str:
    """Tell why a run gives other results without tools, by what its compiled code showed."""
    if not tool.rows():
        return "it draws random numbers, or goes on from what the run before left"
    return f"it has compiled code, which runs operator by operator under tools; {tool.found()}"


def compare_records(
    first: Run | str | os.PathLike[str],
    second: Run | str | os.PathLike[str],
    *,
    rtol: float | None = None,
) -> Comparison:
    """Compare two records, or the files of them.

    Operators are matched by their ids. Where these differ, as between backends, the n-th operator
    of a type in a layer is matched with the n-th one there; what only moves data is left out then.

    Args:
        first, second: what :meth:`amanda_tools.Record.run` gave, or files.
        rtol: as for :func:`compare`.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is no record, or no such difference can be allowed.
    """
    check_tolerance(rtol)
    one, other = (run if isinstance(run, Run) else unpacked(run) for run in (first, second))
    pairs = matched(one.rows, other.rows)
    there = {_key(row, row.id): (row, s) for row, s in zip(*other[:2], strict=True)}
    differences: list[Difference] = []
    allowed = 0.0  # it never shrinks: an earlier difference reaches later operators
    for row, sample in zip(*one[:2], strict=True):
        key = _key(row, pairs.pairs.get(row.id, ""))
        if key in there:
            allowed = max(allowed, _allowed(row, there[key][0])) if rtol is None else rtol
            differences.append(_difference(row, sample, *there[key], allowed))
    comparison = Comparison(differences, pairs.only_first, pairs.only_second)
    for run, which in ((one, "first"), (other, "second")):
        if run.partial is not None:
            comparison.notes.append(f"the {which} run is partial: {run.partial}")
    return comparison


def _key(row: Recorded, id: str) -> tuple[str, str, str, int]:
    return id, row.direction, row.tensor, row.iteration


def _difference(
    row: Recorded, sample: Any, other: Recorded, other_sample: Any, allowed: float
) -> Difference:
    absolute, relative, compared = _error(row, sample, other, other_sample)
    differs = compared != "digest" and is_over(relative, allowed)
    return Difference(
        id=row.id,
        type=row.type,
        scope=row.scope,
        source=row.source,
        other=other.id,
        direction=row.direction,
        tensor=row.tensor,
        iteration=row.iteration,
        dtype=row.dtype,
        other_dtype=other.dtype,
        absolute=absolute,
        relative=relative,
        allowed=allowed,
        differs=differs,
        compared=compared,
    )


def _error(
    row: Recorded, sample: Any, other: Recorded, other_sample: Any
) -> tuple[float, float, str]:
    """Return the absolute and relative error of two tensors, and what of them was compared."""
    if (row.digest, row.dtype, row.shape) == (other.digest, other.dtype, other.shape):
        return 0.0, 0.0, "digest"
    if prod(row.shape) != prod(other.shape):
        return np.inf, np.inf, "shape"
    if _same_order(row.shape, other.shape) and len(sample) == len(other_sample):
        return *distance(sample, other_sample), "values"
    return *distance(_moments(row), _moments(other)), "statistics"


def _same_order(shape: Sequence[int], other: Sequence[int]) -> bool:
    """Tell whether one shape is the other with neighbouring axes merged, so that orders agree."""
    sizes, other_sizes = (set(accumulate(each, mul)) - {1} for each in (shape, other))
    return sizes <= other_sizes or other_sizes <= sizes


def _moments(row: Recorded) -> Any:
    numbers = (row.mean, row.std, row.least, row.most)
    return np.array([np.nan if number is None else number for number in numbers])


def _allowed(row: Recorded, other: Recorded) -> float:
    """Return the relative difference that these types and backends allow."""
    if (row.backend, row.dtype) == (other.backend, other.dtype):
        return 0.0
    return rounding(row.dtype, other.dtype)


def _bytes_equal(one: Any, other: Any) -> bool:
    alike = one.shape == other.shape and one.dtype == other.dtype
    return bool(alike and one.tobytes() == other.tobytes())
