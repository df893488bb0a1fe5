"""How long the first instrumented call of ResNet50 takes, in a process of its own each time."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.measuring import Spread

if TYPE_CHECKING:
    from benchmarks.results import Part

GOALS = {"predict": 0.8, "fit": 3.0}
WANTED = ("Conv2D", "all")
PROCESSES = 2


def times(how: str, wanted: str) -> tuple[float, float, float]:
    """Seconds of a plain call, of the first under a tool and of the second."""
    command = [sys.executable, "-m", "benchmarks.first_call", how, wanted]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(" ".join(done.stderr.splitlines()[-1:]))
    plain, first, second = json.loads(done.stdout.splitlines()[-1])
    return plain, first, second


def run(part: Part) -> None:
    """Measure prediction and a step of training."""
    rows = []
    for how, most in GOALS.items():
        for wanted in WANTED:
            found = [times(how, wanted) for _ in range(1 if part.is_quick else PROCESSES)]
            spreads = [Spread.of(column) for column in zip(*found, strict=True)]
            name = "host routine, all operators" if wanted == "all" else f"host routine, {wanted}"
            rows.append([f"{how}: {name}", *(one.text() for one in spreads)])
            part.table(
                "Seconds of calls of ResNet50",
                ["", "plain", "first under a tool", "second"],
                rows,
                f"Images of 64² in batches of 2; {PROCESSES} processes each.",
            )
            if wanted == "Conv2D":
                part.goal(
                    f"TensorFlow: first instrumented call of ResNet50, {how}: {name}",
                    f"{most} s",
                    f"{spreads[1].text()} s",
                    spreads[1].median <= most,
                )
