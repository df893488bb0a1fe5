"""How much of a training step's wall time does `profile` account for?

Each model runs steps of forward and backward on the CPU: plain, and under the tool. The sum of
the operators' self times is compared with the wall time of the same profiled steps. What is
missing is the time between operators: Python, autograd's own work (accumulating gradients), and
what measuring costs, which the tool knows and is shown as well.

    python benchmarks/profile_accuracy.py [--steps 5]
"""

import argparse
from statistics import median
from time import perf_counter_ns

import amanda
import torch
from amanda_tools import Executions, Profile
from rich.console import Console
from rich.table import Table
from torch import nn


def convolutional():
    """A VGG-like stack of convolutions on images of 64 x 64."""
    layers = []
    for width, wider in [(3, 64), (64, 128), (128, 256)]:
        layers += [
            nn.Conv2d(width, wider, 3, padding=1),
            nn.BatchNorm2d(wider),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        ]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 8 * 8, 10))
    return model, torch.randn(16, 3, 64, 64)


def transformer():
    """Two encoder layers on eight sequences of 128."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return model, torch.randn(8, 128, 512)


def small():
    """A multilayer perceptron too small to be bound by computation, for contrast."""
    return nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10)), torch.randn(8, 32)


def step(model, x):
    start = perf_counter_ns()
    model.zero_grad()
    model(x).square().mean().backward()
    return perf_counter_ns() - start


def profiled_step(model, x, tool):
    before = tool.time, tool.dependency(Executions).overhead
    wall = step(model, x)
    after = tool.time, tool.dependency(Executions).overhead
    return wall, after[0] - before[0], after[1] - before[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    table = Table("model", "plain", "profiled", "in operators", "of profiled", "measuring")
    for build in (convolutional, transformer, small):
        torch.manual_seed(0)
        model, x = build()
        step(model, x)
        plain = median(step(model, x) for _ in range(args.steps))
        tool = Profile()
        with amanda.apply(tool):
            profiled_step(model, x, tool)
            steps = [profiled_step(model, x, tool) for _ in range(args.steps)]
        wall, inside, measuring = (median(column) for column in zip(*steps, strict=True))
        shown = [f"{time / 1e6:.2f} ms" for time in (plain, wall, inside)]
        table.add_row(build.__name__, *shown, f"{inside / wall:.1%}", f"{measuring / 1e6:.2f} ms")
    Console().print(table)


if __name__ == "__main__":
    main()
