"""What it brings to keep what analysis routines decide, against asking them at every execution."""

from __future__ import annotations

import contextlib
import gc
import importlib
import statistics
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import amanda
import torch
from amanda_tools import Flops, NanWatch, Profile, Trace
from amanda_tools.pruning import MagnitudePruning, VectorWisePruning
from amanda_tools.quantization import Quantize

from benchmarks.empty import Empty
from benchmarks.measuring import PLAIN, around, interleaved, plainly, reason
from benchmarks.tool_ways import under
from benchmarks.torch_models import inception, minilm, resnet50
from benchmarks.torch_models import small_transformer as small

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from benchmarks.measuring import Call, Way
    from benchmarks.results import Part

MEAN, BEST = 17.0, 72.0  # which were published
# What names of cases begin with, by framework.
FRAMEWORKS = {"all": ("",), "PyTorch": ("PyTorch",), "TensorFlow": ("Keras", "Session")}
WHAT = ("whole", "overhead")
FOLDER = tempfile.TemporaryDirectory()  # of traces; it is deleted with the process
TOOLS: dict[str, Callable[[], amanda.Tool]] = {
    "empty routine": Empty,
    "`flops`": Flops,
    "`profile`": Profile,
    "`trace`": lambda: Trace(f"{FOLDER.name}/trace.jsonl"),
    "`nan`": NanWatch,
    "`magnitude`": lambda: MagnitudePruning(0.5),
    "`vector_wise`": VectorWisePruning,
    "`quantize`": lambda: Quantize(8),
}


# On TensorFlow to ask anew is to prepare the graph anew, which takes seconds: few are measured.
FEW = ("empty routine", "`flops`", "`magnitude`", "`quantize`")


@dataclass
class Case:
    """Something to run, the tools it is run under, and how it is measured."""

    name: str
    call: Call
    tools: Collection[str]
    clock: Callable[[], float]
    seconds: float
    least: int


def torch_cases() -> Iterator[Case]:
    """Inference of models of PyTorch."""
    torch.set_num_threads(1)
    for build in (lambda: minilm(1), small, inception, lambda: resnet50(1, 64)):
        torch.manual_seed(0)
        workload = build()
        name = f"PyTorch: {workload.name}"
        yield Case(name, workload.infer, TOOLS, time.process_time, 8.0, 2)


def tensorflow_cases() -> Iterator[Case]:
    """Inference in Keras and in a session."""
    importlib.import_module("amanda_tensorflow")  # before graphs are built, as its page asks
    from benchmarks.keras_models import mobilenet, small_transformer

    predict = small_transformer().call("predict")
    yield Case("Keras: small Transformer", predict, FEW, time.perf_counter, 10.0, 1)
    session = mobilenet(32, 1).call("Session")
    yield Case("Session: MobileNetV2, 1 x 32²", session, FEW, time.perf_counter, 10.0, 1)


def run(part: Part) -> None:
    """Measure every tool on every model, with what is kept and without."""
    found: dict[str, dict[str, Any]] = {}
    for cases in (torch_cases, tensorflow_cases):
        try:
            for case in cases():
                gc.unfreeze()
                found[case.name] = measure(part, case)
                show(part, found)
                goals(part, found)
        except Exception as error:
            part.note(f"Not all of {cases.__name__} ran: {reason(error)}")


def goals(part: Part, found: dict[str, dict[str, Any]]) -> None:
    """Compare what has been measured so far with what was published."""
    part.goals.clear()
    rows = []
    for of, begins in FRAMEWORKS.items():
        measured = [
            cell
            for case, row in found.items()
            for cell in row.values()
            if isinstance(cell, dict) and case.startswith(begins)
        ]
        if not measured:
            continue
        summed = [f(c[what] for c in measured) for what in WHAT for f in (statistics.mean, max)]
        rows.append([of, str(len(measured)), *(f"{value:.1f}" for value in summed)])
        if of == "all":
            for name, to_reach, value in (("mean", MEAN, summed[0]), ("best", BEST, summed[1])):
                part.goal(
                    f"caching against `cache_disabled()`, a call, {name} over tools and models",
                    f"above {to_reach:.0f}",
                    f"{value:.1f}",
                    value > to_reach,
                )
    part.table(
        "Mean and best of these",
        ["", "cases", "call, mean", "call, best", "added, mean", "added, best"],
        rows,
    )


def measure(part: Part, case: Case) -> dict[str, Any]:
    """How many times as long a call takes where nothing is kept, by tool."""
    ways: dict[str, Way] = {PLAIN: plainly()}
    for name in case.tools:
        make = TOOLS[name]
        ways |= {name: under(make), f"{name} uncached": uncached(make)}
    times = interleaved(
        case.call,
        ways,
        part.seconds(case.seconds),
        least=part.rounds(case.least),
        warmup=1,
        clock=case.clock,
        turn=0.05,
    )
    row: dict[str, Any] = {}
    for name in case.tools:
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
        cells = [row.get(tool, "-") for row in found.values()]
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
