"""Two runs of a program are compared: the first operator whose result differs, and by how much."""

from __future__ import annotations

from itertools import accumulate
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any, Literal

import amanda
import numpy as np

from amanda_tools.arrays import returned
from amanda_tools.comparison import Comparison, Difference
from amanda_tools.compiled import Compiled
from amanda_tools.distance import bytes_equal, check_tolerance, distance, is_over, rounding
from amanda_tools.matching import matched
from amanda_tools.recording import Record, Recorded, Run, unpacked

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence


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
            if not bytes_equal(results[-1], returned(result, f"the {which} run")):
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
