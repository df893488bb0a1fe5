"""Trains a model for some steps and prints the most bytes this process held.

``python -m benchmarks.memory_process MODEL WAY``; Amanda is imported only where WAY says so.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Any

STEPS = 4


def main() -> None:
    model, way = sys.argv[1:]
    if way != "without" and model.startswith("Keras"):
        importlib.import_module("amanda_tensorflow")  # before graphs are built, as its page asks
    step = step_of(model)
    with scope(way):
        for _ in range(STEPS):
            step()
    print(peak())


def step_of(model: str) -> Any:
    """A step of training of a model."""
    if model == "Keras MobileNetV2":
        from benchmarks.keras_models import mobilenet

        return mobilenet().call("fit")
    import torch

    from benchmarks.torch_models import WORKLOADS

    torch.set_num_threads(1)
    torch.manual_seed(0)
    return WORKLOADS[model]().train


def scope(way: str) -> contextlib.AbstractContextManager[None]:
    """The scope in which it is done, if any."""
    if way == "without":
        return contextlib.nullcontext()
    import amanda

    if way == "profile":
        from amanda_tools import Profile

        return amanda.apply(Profile())
    from benchmarks.empty import Empty

    return amanda.apply(Empty(backward=True))


def peak() -> int:
    """The most bytes of memory that this process held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
