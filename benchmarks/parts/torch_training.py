"""Steps of training in PyTorch, under tools and under everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.model_tables import measure

if TYPE_CHECKING:
    from benchmarks.results import Part


def run(part: Part) -> None:
    """Measure all models."""
    measure(part, training=True)
