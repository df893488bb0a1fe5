"""How much of a training step's wall time does ``profile`` account for?

Each model runs steps of forward and backward on the CPU: plain, and under the tool. The sum of
the operators' self times is compared with the wall time of the same profiled steps. What is
missing is the time between operators: Python, autograd's own work (accumulating gradients), and
what measuring costs, which the tool knows and is shown as well.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

import amanda
import torch
from amanda_tools import Executions, Profile
from torch import Tensor, nn

from benchmarks.measuring import Spread

if TYPE_CHECKING:
    from benchmarks.results import Part


def convolutional() -> tuple[nn.Module, Tensor]:
    """A VGG-like stack of convolutions on images of 64 x 64."""
    layers: list[nn.Module] = []
    for width, wider in [(3, 64), (64, 128), (128, 256)]:
        layers += [
            nn.Conv2d(width, wider, 3, padding=1),
            nn.BatchNorm2d(wider),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        ]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 8 * 8, 10))
    return model, torch.randn(16, 3, 64, 64)


def transformer() -> tuple[nn.Module, Tensor]:
    """Two encoder layers on four sequences of 128."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return model, torch.randn(4, 128, 512)


def small() -> tuple[nn.Module, Tensor]:
    """A multilayer perceptron too small to be bound by computation, for contrast."""
    return nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10)), torch.randn(8, 32)


def step(model: nn.Module, x: Tensor) -> float:
    """Nanoseconds of forward and backward."""
    start = perf_counter_ns()
    model.zero_grad()
    model(x).square().mean().backward()
    return perf_counter_ns() - start


def profiled_step(model: nn.Module, x: Tensor, tool: Profile) -> tuple[float, float, float]:
    """Nanoseconds of it under the tool, of its operators, and of measuring them."""
    before = tool.time, tool.dependency(Executions).overhead
    wall = step(model, x)
    after = tool.time, tool.dependency(Executions).overhead
    return wall, after[0] - before[0], after[1] - before[1]


def run(part: Part) -> None:
    """Measure all models."""
    torch.set_num_threads(1)
    steps = 2 if part.is_quick else 7
    rows = []
    for build in (convolutional, transformer, small):
        torch.manual_seed(0)
        model, x = build()
        plain, profiled = [], []
        step(model, x)
        tool = Profile()
        for _ in range(steps):
            plain.append(step(model, x))
            with amanda.apply(tool):
                profiled_step(model, x, tool)  # in which operators are analyzed
                profiled.append(profiled_step(model, x, tool))
        wall, inside, measuring = zip(*profiled, strict=True)
        shares = [one / all_of_it for one, all_of_it in zip(inside, wall, strict=True)]
        shown = [Spread.of(times).text(scale=1e-6) for times in (plain, wall, inside, measuring)]
        rows.append([build.__name__, *shown[:3], Spread.of(shares).text("{:.1%}"), shown[3]])
    columns = ["plain, ms", "profiled, ms", "in operators, ms", "of profiled", "measuring, ms"]
    part.table(
        "Wall time of a training step that `profile` accounts for",
        ["model", *columns],
        rows,
        f"Median and quartiles of {steps} steps, plain and profiled in turns.",
    )
