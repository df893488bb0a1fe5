"""The report: what the parts have found, as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.machine import commit, description

if TYPE_CHECKING:
    from benchmarks.plots import Drawn
    from benchmarks.results import Goal, Part, Table

METHOD = """\
- **Interleaved.** The ways to run something (plain, under a tool, under a peer) take turns in one
  process, in another random order in each round. A ratio compares the two turns of one round; the
  figure is the median over the rounds, with the quartiles in brackets.
- **Steady.** The first calls of a turn, in which operators are analyzed, are not timed, except
  where first calls are what is measured. A turn counts by the median of its calls.
- **One thread** computes, on a machine with nothing else to do. PyTorch is measured in time of the
  process, which equals the time on the clock there; TensorFlow, whose threads wait for each other,
  in time on the clock.
- **Plain once more** is in the tables of models as a way of its own. What it differs from 1 by is
  what the method cannot tell.
- **A way that fails** is a cell that says why. Each part of the suite runs in a process of its own,
  with a limit of time; a part that is cut short keeps what it had measured.
"""
HEADINGS = {
    "operators": "An operator of PyTorch",
    "torch_inference": "Models of PyTorch: inference",
    "torch_training": "Models of PyTorch: training",
    "scopes": "Opening and closing a scope",
    "growth": "Growth",
    "caching": "Caching",
    "memory": "Memory",
    "leaks": "Leaks",
    "tensorflow_models": "Models of TensorFlow",
    "tensorflow_routines": "Routines on TensorFlow",
    "tensorflow_first_calls": "First calls on TensorFlow",
    "tensorflow_building": "Building graphs on TensorFlow",
    "coverage": "What is seen",
    "profile_accuracy": "How exact times are",
    "side_by_side": "Beside other libraries: lines of code",
    "gpu": "On a GPU",
}


def text(parts: list[Part], drawn: dict[str, Drawn], is_quick: bool) -> str:
    """All of it."""
    lines = ["# Results", ""]
    if is_quick:
        lines += ["**A quick run, which tells whether all runs: its figures mean nothing.**", ""]
    lines += [
        "Written by `python -m nox -s benchmarks`; [README.md](README.md) tells about it.",
        "",
    ]
    lines += [f"- Date: {when(parts)}", f"- Machine: {description()}"]
    lines += [f"- Commit: {commit()}"]
    lines += [f"- Versions: {', '.join(versions(parts))}", "", "## Method", "", METHOD]
    goals = [goal for part in parts for goal in part.goals]
    if goals:
        lines += ["## What was to be reached", "", *goal_table(goals), ""]
    for part in parts:
        lines += section(part, drawn)
    lines += ["## How long it took", "", *markdown(["part", "seconds"], durations(parts)), ""]
    return "\n".join(lines)


def when(parts: list[Part]) -> str:
    """When the first and the last part began."""
    dates = sorted(part.date for part in parts if part.date)
    return dates[0] if dates[:1] == dates[-1:] else f"{dates[0]} to {dates[-1]}"


def versions(parts: list[Part]) -> list[str]:
    """What was installed."""
    found: dict[str, str] = {}
    for part in parts:
        found.update(part.versions)
    return [f"{name} {version}" for name, version in found.items()]


def goal_table(goals: list[Goal]) -> list[str]:
    """Each figure beside the one that was to be reached."""
    reached = sum(goal.is_reached for goal in goals)
    rows = [
        [goal.what, goal.to_reach, goal.measured, "yes" if goal.is_reached else "no"]
        for goal in goals
    ]
    table = markdown(["", "to reach", "measured", "reached"], rows)
    return [f"{reached} of {len(goals)} are reached.", "", *table]


def section(part: Part, drawn: dict[str, Drawn]) -> list[str]:
    """A heading with what a part has found under it."""
    lines = [f"## {HEADINGS[part.name]}", ""]
    if part.failure is not None:
        lines += [f"**Not complete: {part.failure}.**", ""]
    for note in part.notes:
        lines += [note, ""]
    for table in part.tables:
        lines += [*titled(table), ""]
    for plot in part.plots:
        picture = drawn[plot.name]
        lines += [picture.failure or f"![{plot.title}]({picture.path})", ""]
    return lines


def titled(table: Table) -> list[str]:
    """A table with its title and its note."""
    note = [table.note, ""] if table.note else []
    return [f"**{table.title}**", "", *note, *markdown(table.columns, table.rows)]


def durations(parts: list[Part]) -> list[list[str]]:
    """How long each part took, and all of them."""
    rows = [[part.name, f"{part.took:.0f}"] for part in parts]
    return [*rows, ["all", f"{sum(part.took for part in parts):.0f}"]]


def markdown(columns: list[str], rows: list[list[str]]) -> list[str]:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]
