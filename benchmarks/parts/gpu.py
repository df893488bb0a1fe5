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
from benchmarks.measuring import PLAIN, Measured, plainly, reason
from benchmarks.ratio_tables import AGAIN, ratio_goal, rows
from benchmarks.torch_ways import BOTH, amanda_ways, torch_ways

if TYPE_CHECKING:
    from benchmarks.measuring import Call, Way
    from benchmarks.results import Part

DEVICE = "cuda"
GOAL = 1.005
BATCHES = (32, 128)
STEPS = 10
FORM = "{:.4f}"


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
    part.table(
        "A step of training ResNet-50 on a GPU",
        ["", *(f"batches of {batch}" for batch in BATCHES)],
        rows({str(batch): found for batch, found in columns.items()}, FORM),
        f"From a CUDA event before {STEPS} steps to one after them; ratios as above.",
    )
    for batch, found in columns.items():
        what = f"ResNet-50 on a GPU, training step, batches of {batch}: {BOTH}"
        ratio_goal(part, what, found, BOTH, GOAL, FORM)


def measure(batch: int, part: Part) -> dict[str, Measured]:
    """Time steps under all ways, which take turns."""
    torch.manual_seed(0)
    model = ResNet50().to(DEVICE).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    x = torch.randn(batch, 3, 224, 224, device=DEVICE)
    y = torch.randint(0, 1000, (batch,), device=DEVICE)

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
