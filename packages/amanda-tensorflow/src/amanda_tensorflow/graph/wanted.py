"""A version of a tensor is told by the operator whose gradient reads it, or by what is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from amanda_tensorflow.graph.body import split
from amanda_tensorflow.graph.called_functions import BRANCHES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amanda.driving import Ask

    from amanda_tensorflow.graph.frames import Frame


class Wanted(NamedTuple):
    """This tells which version of a tensor is wanted: that which an operator's gradient reads.

    Attributes:
        graph: number of the operator's graph.
        operator: its name there.
        again: for an operator that takes the tensor several times, which time, from 0.
        loops: how many loops around the operator the tensor comes from outside of, that do not
            change it: wanted is a list of the versions of all iterations, or of such lists.
        ask: for a routine rather than the gradient: what it asks for of the operator. It travels
            the way of any tensor that comes from where the operator is.
        layer: the number of the layer that it asks that of, which the operator is in.
    """

    graph: int
    operator: str
    again: int = 0
    loops: int = 0
    ask: Ask | None = None
    layer: int | None = None


def given_to_branches(frame: Frame) -> Iterator[tuple[Frame, str, str]]:
    """List what is given to branches: the branch, and the tensor's names in it and outside."""
    for call, children in frame.children.items():
        for branch in children:
            if branch.attr in BRANCHES:
                pairs = zip(branch.body.arguments, frame.inputs[call][1:], strict=False)
                for (argument, _), tensor in pairs:
                    yield branch, f"{argument}:0", tensor


def source_of(frame: Frame, tensor: str) -> str:
    """Return what a tensor is a copy of, before anything is edited."""
    name = split(tensor)[0]
    while name in frame.inputs and frame.body.nodes[name].op == "Identity":
        tensor = frame.inputs[name][0]
        name = split(tensor)[0]
    return tensor


def same(frame: Frame, one: str, other: str) -> bool:
    """Tell whether two tensors were copies of one before anything was edited."""
    return source_of(frame, one) == source_of(frame, other)
