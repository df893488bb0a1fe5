"""Memory of the process, with tools and without: each in a process of its own."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benchmarks.measuring import reason
from benchmarks.process import printed

if TYPE_CHECKING:
    from benchmarks.results import Part

PLAIN, EMPTY = "without", "forward and backward"
WAYS = (PLAIN, EMPTY, "profile")
# The models with how many processes are compared, and the share of memory to stay under.
MODELS = {
    "small Transformer": (2, 0.05),
    "MiniLM batch 32": (2, 0.01),
    "ResNet-50": (2, 0.01),
    "Keras MobileNetV2": (2, 0.01),
}
# Tensors are given back to the system at once where glibc keeps this fixed. It adapts otherwise,
# and the peaks of two processes that do the same then differ by up to 4%.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(2**17)}
COLUMNS = ["", "without, MiB", "empty routines, all operators", "`profile`"]


def peak(model: str, way: str) -> float:
    """MiB that a process which trains a model held at most."""
    return int(printed("memory_process", model, way, **ALLOCATOR)) / 2**20


def run(part: Part) -> None:
    """Compare the peaks of processes."""
    rows: list[list[str]] = []
    for model, (count, share) in list(MODELS.items())[: 1 if part.is_quick else None]:
        try:
            peaks: dict[str, list[float]] = {way: [] for way in WAYS}
            for _ in range(1 if part.is_quick else count):
                for way in WAYS:
                    peaks[way].append(peak(model, way))
        except Exception as error:
            part.note(f"{model}: {reason(error)}")
            continue
        rows.append([model, *cells(peaks)])
        part.table(
            "Peak of a process that takes some steps of training",
            COLUMNS,
            rows,
            "*Without*: Amanda is not imported. Median, least and most of some processes. Their "
            "allocator has a fixed `MALLOC_MMAP_THRESHOLD_`: without it the peaks of two that do "
            "the same differ by up to 4%. With PyTorch, what empty routines add is code, kernels "
            "and what is known of each operator: the step holds as many bytes of tensors as "
            "without them, which `test_peak_memory.py` of the driver pins.",
        )
        added = statistics.median(peaks[EMPTY]) / statistics.median(peaks[PLAIN]) - 1
        part.goal(
            f"memory, {model}, empty routines at all operators, forward and backward",
            f"under {share:.0%}",
            f"{added:+.1%}",
            added < share,
        )


def cells(peaks: dict[str, list[float]]) -> list[str]:
    """The peak without, and how much more the other ways take."""
    plain = statistics.median(peaks[PLAIN])
    found = [f"{plain:.0f} ({min(peaks[PLAIN]):.0f} to {max(peaks[PLAIN]):.0f})"]
    for way in WAYS[1:]:
        more, low, high = (f(peaks[way]) / plain - 1 for f in (statistics.median, min, max))
        found.append(f"{more:+.1%} ({low:+.1%} to {high:+.1%}), {more * plain:+.0f} MiB")
    return found
