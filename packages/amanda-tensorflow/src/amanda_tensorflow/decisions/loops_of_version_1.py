"""Tools may not change what an operator in a loop of version 1 takes from outside, and is trained.

The loop of the gradient takes such a tensor from outside too, and would not see what a routine made
of it in each turn: no stack brings it there, as one does for what is made within the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda.driving import Point

from amanda_tensorflow.composites import Group, uses_of
from amanda_tensorflow.graph.body import split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.routines.stages import Stage

_WHY = (
    "the operator takes this tensor from outside of a loop of version 1, and its gradient would "
    "read what it is there; insert at the operator that makes it, exclude this one by ops=, or "
    "build the graph with tf.compat.v1.enable_control_flow_v2()"
)
# They hand a tensor on into a loop, and within it into a branch.
_INTO = frozenset(["Enter", "RefEnter", "Identity", "Switch"])


def keep_to_loops_of_version_1(frames: Sequence[Frame], stages: Sequence[Stage]) -> None:
    """Have no routine change, for an operator whose gradient runs, what is from outside its loop.

    Args:
        frames: all frames.
        stages: all that is to be inserted into them; the positions that a routine on the host must
            not replace are fixed.

    Raises:
        UnsupportedError: a pure routine would change it.
    """
    for stage in stages:
        if stage.point is Point.BEFORE_OP and isinstance(stage.anchor, str | Group):
            frame = frames[stage.frame]
            parted = [
                position
                for position in stage.changed
                for node, at in uses_of(stage.anchor, position)
                if (outside := _outside(frame, frame.inputs[node][at]))
                and outside in _read_by_gradient(frame, node)
            ]
            stage.keep(parted, _WHY)


def _outside(frame: Frame, tensor: str) -> str | None:
    """Return what a tensor is outside of all loops; None for one that is not from outside."""
    is_outside = False
    while (node := frame.body.nodes.get(split(tensor)[0])) is not None and node.op in _INTO:
        is_outside = is_outside or "Enter" in node.op
        tensor = frame.inputs[node.name][0]
    return tensor if is_outside else None


def _read_by_gradient(frame: Frame, node: str) -> Iterator[str]:
    """List what the gradient of an operator reads from outside of its loop."""
    operator = frame.operations[node].name
    for call, readers in frame.gradients.nodes_of.items():
        if call.forward == operator and call.forward_graph() is frame.graph:
            for reader in frame.running.intersection(readers):
                for tensor in frame.inputs[reader]:
                    outside = _outside(frame, tensor)
                    if outside is not None:
                        yield outside
