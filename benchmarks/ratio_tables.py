"""Tables of ratios to plain: a column for each thing that is run, a row for each way to run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.measuring import PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.measuring import Measured
    from benchmarks.results import Part

AGAIN = "plain once more"


def rows(columns: Mapping[str, Mapping[str, Measured]], form: str = "{:.3f}") -> list[list[str]]:
    """A row for each way in any of the columns, and one for how many rounds there were."""
    names = dict.fromkeys(name for found in columns.values() for name in found)
    table = [
        [
            f"{name}, ms" if name == PLAIN else name,
            *(cell(found, name, form) for found in columns.values()),
        ]
        for name in names
    ]
    rounds = [str(found[PLAIN].seconds.count) for found in columns.values()]
    return [*table, ["rounds", *rounds]]


def cell(found: Mapping[str, Measured], name: str, form: str) -> str:
    """What stands in the table for one way."""
    if name not in found:
        return "-"
    measured = found[name]
    if measured.failure is not None:
        return measured.failure
    if name == PLAIN:
        return measured.seconds.text("{:.1f}", 1e3)
    return measured.ratio(found[PLAIN]).text(form)


def ratio_goal(
    part: Part,
    what: str,
    found: Mapping[str, Measured],
    name: str,
    most: float,
    form: str = "{:.3f}",
) -> None:
    """Compare the ratio of a way, as it is shown, with the one that was to be reached."""
    measured = found[name]
    if measured.failure is not None:
        part.goal(what, f"{most}", measured.failure, False)
        return
    ratio = measured.ratio(found[PLAIN])
    part.goal(what, f"{most}", ratio.text(form), float(form.format(ratio.median)) <= most)
