"""A version of a tensor is told by the operator whose gradient reads it, or by what is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from amanda_tensorflow.graph.body import split

if TYPE_CHECKING:
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
