"""The way of one ``F.linear`` through Amanda: which Python functions run, and in which files.

A tool masks the weight of a linear layer that is trained. At a steady state one call of it is
followed. ``python benchmarks/walk.py`` prints each function that is called, then how many there
are and how often the file changes from one to the next: of all that run, and of Amanda's own with
the tool's routine.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import amanda
import torch

if TYPE_CHECKING:
    from types import FrameType


class Mask(amanda.Tool):
    """Masks the weights of linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.add_inst_for_op(self.analyze, ops=["linear"])

    def analyze(self, ctx: amanda.OpContext) -> None:
        ctx.insert_before_op(self.mask, inputs=["weight"], mask=torch.ones_like(ctx.inputs[1]))

    def mask(self, weight: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return weight * mask


class Linear(torch.nn.Module):
    """Has the call of its operator followed, if there is somebody to follow it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4))
        self.follow: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sys.setprofile(self.follow)
        try:
            return torch.nn.functional.linear(x, self.weight)
        finally:
            sys.setprofile(None)


def walked() -> list[tuple[str, str]]:
    """The file and the name of each Python function that runs in one call, in order."""
    walk: list[tuple[str, str]] = []

    def follow(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            walk.append((frame.f_code.co_filename, frame.f_code.co_qualname))

    model, x = Linear(), torch.randn(2, 4)
    with amanda.apply(Mask()):
        for _ in range(3):  # it is analyzed at the first
            model(x)
        model.follow = follow
        model(x)
    return walk


def steps(files: list[str]) -> str:
    """How many calls there are, and changes of file, counted from the program's own."""
    changes = sum(one != other for one, other in zip([__file__, *files], files, strict=False))
    return f"{len(files)} calls, {changes} changes of file"


def main() -> None:
    walk = walked()
    for file, name in walk:
        print(f"{Path(file).parent.name}/{Path(file).name:24} {name}")
    files = [file for file, _ in walk]
    ours = ("amanda", "amanda_torch", "benchmarks")
    print("all:", steps(files))
    print("Amanda and the tool:", steps([f for f in files if Path(f).parent.name in ours]))


if __name__ == "__main__":
    main()
