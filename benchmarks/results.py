"""What a part of the suite finds: tables, goals and curves, kept in a file as they come in."""

from __future__ import annotations

import dataclasses
import datetime
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Table:
    """A table of the report, with what one must know to read it."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass
class Goal:
    """A figure that was to be reached, and the one that was measured."""

    what: str
    to_reach: str
    measured: str
    is_reached: bool


@dataclass
class Curve:
    """Points of a plot, each with the quartiles about it."""

    label: str
    x: list[float]
    y: list[float]
    low: list[float]
    high: list[float]


@dataclass
class Plot:
    """Curves over a common axis, both of them logarithmic; or bars, where ``names`` are given."""

    name: str
    title: str
    x_label: str
    y_label: str
    curves: list[Curve]
    names: list[str] = field(default_factory=list)


@dataclass
class Part:
    """What one part has found so far.

    Attributes:
        name: the part's module.
        is_quick: whether it is only tried, with few repetitions.
        file: where it is kept; each addition is written at once.
        failure: why it ended early.
        took: seconds from its start to its last addition, or its end.
    """

    name: str
    is_quick: bool = False
    file: Path | None = None
    date: str = ""
    took: float = 0.0
    failure: str | None = None
    tables: list[Table] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    def seconds(self, full: float) -> float:
        """How long a measurement may take that takes so many seconds in a full run."""
        return full / 20 if self.is_quick else full

    def rounds(self, full: int) -> int:
        """How many rounds to make at least."""
        return 1 if self.is_quick else full

    def table(self, title: str, columns: list[str], rows: list[list[str]], note: str = "") -> None:
        """Add a table, or put it in the place of the one with its title."""
        self.tables = [table for table in self.tables if table.title != title]
        self.tables.append(Table(title, columns, rows, note))
        self.save()

    def goal(self, what: str, to_reach: str, measured: str, is_reached: bool) -> None:
        """Add a figure that was to be reached."""
        self.goals.append(Goal(what, to_reach, measured, bool(is_reached)))
        self.save()

    def plot(self, plot: Plot) -> None:
        """Add a plot."""
        self.plots.append(plot)
        self.save()

    def note(self, text: str) -> None:
        """Add a sentence."""
        self.notes.append(text)
        self.save()

    def save(self) -> None:
        """Write all of it into its file."""
        if self.file is None:
            return
        self.date = self.date or datetime.datetime.now().astimezone().isoformat(" ", "minutes")
        content = {
            entry.name: getattr(self, entry.name)
            for entry in dataclasses.fields(self)
            if entry.name != "file"
        }
        text = json.dumps(content, default=dataclasses.asdict, indent=1)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(text, "utf-8")


def load(file: Path) -> Part:
    """Read what a part has written."""
    content: dict[str, Any] = json.loads(file.read_text("utf-8"))
    plots = [
        Plot(**{**plot, "curves": [Curve(**curve) for curve in plot["curves"]]})
        for plot in content.pop("plots")
    ]
    tables = [Table(**table) for table in content.pop("tables")]
    goals = [Goal(**goal) for goal in content.pop("goals")]
    return Part(file=file, tables=tables, goals=goals, plots=plots, **content)
