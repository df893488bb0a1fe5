"""What several processes of one program found is merged: sums, means, and the spread over ranks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

from amanda.driving import known_drivers

from amanda_tools.findings import Findings
from amanda_tools.tables import table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

    Numbers = Mapping[int, float]  # by rank

_SHOWN = 10  # operators in the table, those with most of the first number that is merged


@dataclass
class RankNumber:
    """This is a number that each rank found.

    Attributes:
        what: the row that it is of; ``total`` for one of all rows together.
        field: its name there.
        ranks: how many ranks found one.
        sum, mean, least, most: of those.
        least_rank, most_rank: the first rank that found the least, and the most.
    """

    what: str
    field: str
    ranks: int
    sum: float
    mean: float
    least: float
    least_rank: int
    most: float
    most_rank: int

    @classmethod
    def over(cls, what: str, field: str, numbers: Numbers) -> RankNumber:
        """Return the number over some ranks."""
        total = sum(numbers.values())
        ranks = sorted(numbers)
        least, most = min(ranks, key=numbers.__getitem__), max(ranks, key=numbers.__getitem__)
        return cls(
            *(what, field, len(ranks), total, total / len(ranks)),
            *(numbers[least], least, numbers[most], most),
        )


class Merged(Findings[RankNumber]):
    """This is what the ranks of a program found, merged by their tool's :attr:`Findings.merges`.

    Its rows are the numbers with their spread. ``to_dict()`` has what one process has too, merged;
    rows that do not merge are listed with their ranks.

    Args:
        found: what each rank found, by rank: what ``to_dict()`` of its tool gave.
        missing: what is not in it, in a few words; None if nothing is missing.

    Raises:
        ValueError: they are not of one tool, or do not say how they merge.
    """

    row_type = RankNumber
    rows_name = "spread"

    def __init__(self, found: Mapping[int, Mapping[str, Any]], missing: str | None = None) -> None:
        ways = [each.get("merge") for each in found.values()]
        if not all(isinstance(way, dict) for way in ways):
            raise ValueError("it does not say how it merges; files of amanda's tools in JSON do")
        self._way = cast("dict[str, Any]", ways[0])
        if any(way != self._way for way in ways):
            raise ValueError("they are of several tools, or of several versions of one")
        self.ranks = sorted(found)
        reasons = [] if missing is None else [missing]
        reasons += (f"rank {r}: {found[r]['partial']}" for r in self.ranks if "partial" in found[r])
        self._partial = "; ".join(reasons) or None
        self._numbers: list[RankNumber] = []
        totals = {rank: each["total"] for rank, each in found.items() if "total" in each}
        self._total = self._merged("total", totals) if totals else {}
        self._rows = self._merged_rows(found) if self._way["fields"] else self._listed(found)

    @property
    def name(self) -> str:
        """Return the name of the tool."""
        return str(self._way["tool"])

    def rows(self) -> list[RankNumber]:
        """Return the numbers that the ranks found, and their spread."""
        return list(self._numbers)

    def found(self) -> str:
        """Tell of which tool and of how many ranks it is."""
        return f"{self.name} of {len(self.ranks)} ranks"

    @property
    def partial(self) -> str | None:
        """Tell which ranks are missing or partial; None if none is."""
        return self._partial

    def to_dict(self) -> dict[str, Any]:
        """Return the ranks, what one process has, merged, and the spread."""
        spread = [asdict(number) for number in self._numbers]
        said = {} if self.partial is None else {"partial": self.partial}
        kept = {"ranks": self.ranks, "total": self._total, self._way["rows"]: self._rows}
        return {**said, **kept, self.rows_name: spread}

    def report(self) -> RenderableType:
        """Show a table of the totals and of the operators with most."""
        totals = [number for number in self._numbers if number.what == "total"]
        others = [number for number in self._numbers if number.what != "total" and number.sum]
        first = next((f for f in self._way["fields"] if any(n.field == f for n in others)), None)
        ranked = [number for number in others if number.field == first]
        ranked.sort(key=lambda number: -number.sum)
        title = self.found() if self.partial is None else f"{self.found()}, partial"
        titles = (title, "", "Sum", "Mean", "Least", "Rank", "Most", "Rank")
        return table_of(
            titles,
            (
                (n.what, n.field, n.sum, n.mean, n.least, n.least_rank, n.most, n.most_rank)
                for n in [*totals, *ranked[:_SHOWN]]
            ),
        )

    def _merged_rows(self, found: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
        same: dict[tuple[Any, ...], dict[int, Mapping[str, Any]]] = {}
        for rank, each in found.items():
            times: dict[tuple[Any, ...], int] = {}
            for row in each[self._way["rows"]]:
                key = tuple(row[name] for name in self._way["keys"])
                number = times[key] = times.get(key, 0) + 1
                same.setdefault((*key, number), {})[rank] = row
        return [self._merged(_label(key[:-1]), rows) for key, rows in same.items()]

    def _merged(self, what: str, rows: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
        """Merge one row, or the totals, of all ranks."""
        merged = dict(next(iter(rows.values())))
        for name, how in self._way["fields"].items():
            numbers = {r: row[name] for r, row in rows.items() if isinstance(row.get(name), Real)}
            if numbers:
                number = RankNumber.over(what, name, numbers)
                self._numbers.append(number)
                merged[name] = getattr(number, how)
        return merged

    def _listed(self, found: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
        rows = self._way["rows"]
        return [{"rank": rank, **row} for rank, each in found.items() for row in each[rows]]


def _label(key: Sequence[Any]) -> str:
    return " ".join(str(part) for part in key if part is not None)


def gathered(tools: Iterable[object]) -> list[Merged] | None:
    """Return what the tools found in all processes of the program, in the first one of these.

    It is to be called in every process, with like tools, while the framework's group of processes
    exists (``torch.distributed``), or under ``torchrun``. Those that list what they found are left
    out: their files are merged by ``amanda merge``.

    Returns:
        what each tool found, merged; nothing if there is one process; None in all but the first.
    """
    merging = [tool for tool in tools if isinstance(tool, Findings) and tool.merges]
    values = [tool.to_dict() for tool in merging]
    for driver in known_drivers():
        found = driver.gather(values)
        if found is None:
            return None
        if len(found) > 1:
            there = {rank: each for rank, each in enumerate(found) if each is not None}
            return [
                Merged({rank: each[index] for rank, each in there.items()})
                for index in range(len(merging))
            ]
    return []
