"""What it brings to keep what analysis routines decide, against asking them at every execution."""

from __future__ import annotations

import contextlib
import gc
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import amanda
import torch
from amanda_tools import Flops, NanWatch, Profile, Trace
from amanda_tools.pruning import MagnitudePruning, VectorWisePruning
from amanda_tools.quantization import Quantize

from benchmarks.empty import Empty
from benchmarks.measuring import PLAIN, around, interleaved, plainly, reason
from benchmarks.torch_models import inception, minilm, resnet50, small_transformer
from benchmarks.torch_ways import under

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measuring import Call, Way
    from benchmarks.results import Part

MEAN, BEST = 17.0, 72.0  # which were published
TOOLS: dict[str, Callable[[], amanda.Tool]] = {
    "empty routine": Empty,
    "`flops`": Flops,
    "`profile`": Profile,
    "`trace`": lambda: Trace(Path(tempfile.mkdtemp()) / "trace.jsonl"),
    "`nan`": NanWatch,
    "`magnitude`": lambda: MagnitudePruning(0.5),
    "`vector_wise`": VectorWisePruning,
    "`quantize`": lambda: Quantize(8),
}


@dataclass
class Case:
    """Something to run, and the time it is measured in."""

    name: str
    call: Call
    clock: Callable[[], float]


def torch_cases() -> Iterator[Case]:
    """Inference of models of PyTorch."""
    torch.set_num_threads(1)
    for build in (lambda: minilm(1), small_transformer, inception, lambda: resnet50(1, 64)):
        torch.manual_seed(0)
        workload = build()
        yield Case(f"PyTorch: {workload.name}", workload.infer, time.process_time)


def tensorflow_cases() -> Iterator[Case]:
    """Inference in Keras and in a session."""
    from benchmarks.keras_models import mobilenet

    for way in ("predict", "Session"):
        workload = mobilenet(32, 1)
        yield Case(f"TensorFlow: MobileNetV2, {way}", workload.call(way), time.perf_counter)


def run(part: Part) -> None:
    """Measure every tool on every model, with what is kept and without."""
    found: dict[str, dict[str, Any]] = {}
    for make, seconds in ((torch_cases, 8.0), (tensorflow_cases, 16.0)):
        try:
            for case in make():
                gc.unfreeze()
                found[case.name] = measure(part, case, part.seconds(seconds))
                show(part, found)
        except Exception as error:
            part.note(f"Not all of {make.__name__} ran: {reason(error)}")
    for share, what in (("whole", "time of a call"), ("overhead", "overhead")):
        ratios = [
            cell[share] for row in found.values() for cell in row.values() if isinstance(cell, dict)
        ]
        for name, to_reach, measured in (
            ("mean", MEAN, statistics.mean(ratios)),
            ("best", BEST, max(ratios)),
        ):
            part.goal(
                f"caching against `cache_disabled()`, {what}, {name} over tools and models",
                f"above {to_reach:.0f}",
                f"{measured:.1f}",
                measured > to_reach,
            )


def measure(part: Part, case: Case, seconds: float) -> dict[str, Any]:
    """How many times as long a call takes where nothing is kept, by tool."""
    ways: dict[str, Way] = {PLAIN: plainly()}
    for name, make in TOOLS.items():
        ways |= {name: under(make), f"{name} uncached": uncached(make)}
    times = interleaved(
        case.call,
        ways,
        seconds,
        least=part.rounds(2),
        warmup=1,
        clock=case.clock,
        turn=0.05,
    )
    row: dict[str, Any] = {}
    for name in TOOLS:
        kept, asked = times[name], times[f"{name} uncached"]
        if kept.failure or asked.failure:
            row[name] = kept.failure or asked.failure
            continue
        added, added_uncached = (one.added(times[PLAIN]).median for one in (kept, asked))
        # What is added to a long call may drown in its noise; a hundredth of it is seen.
        least = times[PLAIN].seconds.median / 100
        row[name] = {
            "whole": asked.ratio(kept).median,
            "overhead": added_uncached / max(added, least),
        }
    return row


def uncached(make: Callable[[], amanda.Tool]) -> Way:
    """The way under a tool whose analysis routines are asked at every execution."""

    @contextlib.contextmanager
    def block() -> Iterator[None]:
        with amanda.apply(make()), amanda.cache_disabled():
            yield

    return around(block)


def show(part: Part, found: dict[str, dict[str, Any]]) -> None:
    """Put what there is into the table."""
    rows = []
    for tool in TOOLS:
        cells = [row[tool] for row in found.values()]
        shown = (
            cell if isinstance(cell, str) else f"{cell['whole']:.1f} ({cell['overhead']:.1f})"
            for cell in cells
        )
        rows.append([tool, *shown])
    part.table(
        "Times as long under `cache_disabled()`",
        ["tool", *found],
        rows,
        "A call under the tool, against the same with what analysis routines decide kept. In "
        "brackets the same of what the tool adds to the plain call; where that is less than a "
        "hundredth of the call, it is taken for one.",
    )
