"""What it costs to build graphs while the driver is imported and no scope is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.measuring import Spread
from benchmarks.process import printed

if TYPE_CHECKING:
    from benchmarks.results import Part

GOAL = 1.01
PAIRS = 3


def seconds(variant: str) -> float:
    """Seconds to trace a step of training, the least of some times in one process."""
    return float(printed("build_graph", variant))


def run(part: Part) -> None:
    """Compare processes with and without the driver, in turns."""
    pairs = [(seconds("plain"), seconds("noted")) for _ in range(1 if part.is_quick else PAIRS)]
    plain, noted = (Spread.of(column) for column in zip(*pairs, strict=True))
    ratio = Spread.of(with_it / without for without, with_it in pairs)
    part.table(
        "Seconds of processor time to trace a training step of MobileNetV2",
        ["without the driver", "with it imported, no scope open", "ratio"],
        [[plain.text(), noted.text(), ratio.text("{:.3f}")]],
        f"{len(pairs)} pairs of processes, the least of three times in each.",
    )
    part.goal(
        "TensorFlow: building a graph with the driver imported and no scope open",
        f"{GOAL}",
        ratio.text("{:.3f}"),
        round(ratio.median, 3) <= GOAL,
    )
