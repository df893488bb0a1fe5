"""Eager training of ResNet-50 on a GPU, timed by CUDA events.

Alone, where there is a GPU: ``python -m benchmarks --only gpu``. It needs PyTorch with CUDA and the
packages amanda-core, amanda-torch and amanda-tools; the model is one of ours.
"""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

import torch

from benchmarks.convolutional import ResNet50
from benchmarks.measuring import PLAIN, Measured, Spread, plainly, reason
from benchmarks.torch_ways import BOTH, amanda_ways, torch_ways

if TYPE_CHECKING:
    from benchmarks.measuring import Call, Way
    from benchmarks.results import Part

GOAL = 1.005
BATCHES = (32, 128)
STEPS = 10
AGAIN = "plain once more"


def run(part: Part) -> None:
    """Measure it for some sizes of batches, or say that there is no GPU."""
    if not torch.cuda.is_available():
        part.note(
            "Not run: `torch.cuda.is_available()` is false here. On a machine with a GPU, "
            "`python -m nox -s benchmarks -- --only gpu` measures eager training of ResNet-50 by "
            "CUDA events."
        )
        return
    part.note(f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}.")
    columns = {batch: measure(batch, part) for batch in BATCHES}
    rows = []
    for name in columns[BATCHES[0]]:
        cells = [cell(found, name) for found in columns.values()]
        rows.append([f"{name}, ms" if name == PLAIN else name, *cells])
    part.table(
        "A step of training ResNet-50 on a GPU",
        ["", *(f"batches of {batch}" for batch in BATCHES)],
        rows,
        f"From a CUDA event before {STEPS} steps to one after them; ratios as above.",
    )
    for batch, found in columns.items():
        ratio = found[BOTH].ratio(found[PLAIN])
        part.goal(
            f"ResNet-50 on a GPU, training step, batches of {batch}: {BOTH}",
            f"{GOAL}",
            ratio.text("{:.4f}"),
            round(ratio.median, 4) <= GOAL,
        )


def measure(batch: int, part: Part) -> dict[str, Measured]:
    """Time steps under all ways, which take turns."""
    torch.manual_seed(0)
    model = ResNet50().cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    x = torch.randn(batch, 3, 224, 224, device="cuda")
    y = torch.randint(0, 1000, (batch,), device="cuda")

    def train() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    ways: dict[str, Way] = {PLAIN: plainly(), AGAIN: plainly(), **amanda_ways("conv2d")}
    ways |= {k: way for k, way in torch_ways(model, training=False).items() if k != "DebugMode"}
    for _ in range(5):  # cuDNN chooses its algorithms
        train()
    found = {name: Measured() for name in ways}
    order = list(ways)
    for number in range(2 if part.is_quick else 8):
        random.Random(number).shuffle(order)
        for name in order:
            if found[name].failure is None:
                turn(train, ways[name], found[name], number)
    return found


def turn(train: Call, way: Way, measured: Measured, number: int) -> None:
    """Time some steps under one way."""
    try:
        with way(train) as call:
            for _ in range(2):
                call()
            measured.rounds[number] = seconds(call)
    except Exception as error:
        measured.failure = reason(error)
        with contextlib.suppress(Exception):
            torch.cuda.synchronize()


def seconds(call: Call) -> float:
    """Seconds of a step between two events on the GPU."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(STEPS):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / STEPS


def cell(found: dict[str, Measured], name: str) -> str:
    """What stands in the table for one way."""
    measured = found[name]
    if measured.failure is not None:
        return measured.failure
    spread: Spread = measured.seconds if name == PLAIN else measured.ratio(found[PLAIN])
    return spread.text("{:.2f}", 1e3) if name == PLAIN else spread.text("{:.4f}")
