"""How long the first instrumented call of ResNet50 takes, in a process of its own each time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks.measuring import Spread, reason
from benchmarks.process import printed

if TYPE_CHECKING:
    from benchmarks.results import Part

GOALS = {"predict": 0.8, "fit": 3.0}
# Which types get a routine, when the driver is imported, and how many processes are measured.
CASES = [("Conv2D", "before", 2), ("all", "before", 1), ("Conv2D", "after", 1)]


def times(how: str, wanted: str, imported: str) -> tuple[float, float, float]:
    """Seconds of a plain call, of the first under a tool and of the second."""
    plain, first, second = json.loads(printed("first_call", how, wanted, imported))
    return plain, first, second


def run(part: Part) -> None:
    """Measure prediction and a step of training."""
    rows = []
    for how, most in GOALS.items():
        for wanted, imported, count in CASES:
            name = "host routine, all operators" if wanted == "all" else f"host routine, {wanted}"
            if imported == "after":
                name += ", driver imported after the graph was built"
            try:
                found = [times(how, wanted, imported) for _ in range(1 if part.is_quick else count)]
            except Exception as error:
                part.note(f"{how}, {name}: {reason(error)}")
                continue
            spreads = [Spread.of(column) for column in zip(*found, strict=True)]
            rows.append([f"{how}: {name}", *(one.text() for one in spreads)])
            part.table(
                "Seconds of calls of ResNet50",
                ["", "plain", "first under a tool", "second"],
                rows,
                "Images of 64² in batches of 2; each time in another process.",
            )
            if (wanted, imported) == ("Conv2D", "before"):
                part.goal(
                    f"TensorFlow: first instrumented call of ResNet50, {how}: {name}",
                    f"{most} s",
                    f"{spreads[1].text()} s",
                    spreads[1].median <= most,
                )
