"""Tools may not change an operator whose forward gradient is computed in the same graph.

``tf.autodiff.ForwardAccumulator`` computes the tangents of an operator where that is made, by a
call of a function that takes what the operator takes and gives. That reads what the program gives
the operator, and what comes out of it after all routines, where the gradient of the operator is to
read the one as routines before it have left it, and the other as it gave it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from amanda.driving import Point

from amanda_tensorflow.composites import Group, uses_of
from amanda_tensorflow.graph.body import split
from amanda_tensorflow.graph.called_functions import BRANCHES, FUNCTION_CALLS
from amanda_tensorflow.graph.node_types import SHAPE_ALONE
from amanda_tensorflow.notes import notes_of, title

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.routines.stages import Stage

    Read = tuple[str, Point, int]
    """A node, whether it takes or gives the tensor, and at which position."""

# What TensorFlow calls the functions that compute tangents of one operator.
_TANGENTS = re.compile("_jvp_(exact|relaxed)_shapes")
_WHY = (
    "a tf.autodiff.ForwardAccumulator computes its tangents in the same function, and they would "
    "be those of the unchanged operator; enter the accumulator outside of the tf.function, take "
    "the gradient by a tf.GradientTape, or exclude the operator by ops="
)


def keep_to_forward_gradients(frames: Sequence[Frame], stages: Sequence[Stage]) -> None:
    """Have no routine change what the forward gradient of an operator reads.

    Args:
        frames: all frames.
        stages: all that is to be inserted into them; the positions that a routine on the host must
            not replace are fixed.

    Raises:
        UnsupportedError: a pure routine, or one in place of an operator, would change it.
    """
    read = {index: found for index, frame in enumerate(frames) if (found := set(_read(frame)))}
    for stage in stages:
        if stage.frame in read and isinstance(stage.anchor, str | Group):
            parted = [
                position
                for position in stage.changed
                if not read[stage.frame].isdisjoint(_places(stage, position))
            ]
            stage.keep(parted, _WHY)


def _places(stage: Stage, position: int) -> Iterator[Read]:
    """List where a tensor that a stage may replace is taken or given by operators."""
    anchor = stage.anchor if isinstance(stage.anchor, Group) else str(stage.anchor)
    if stage.point is not Point.BEFORE_OP:
        yield anchor.root if isinstance(anchor, Group) else anchor, Point.AFTER_OP, position
        return
    for node, at in uses_of(anchor, position):
        yield node, Point.BEFORE_OP, at


def _read(frame: Frame) -> Iterator[Read]:
    """List what functions that compute tangents read of the operators in a frame."""
    for call, children in frame.children.items():
        if not _computes_tangents(frame, call):
            continue
        inputs = frame.inputs[call]
        for node, begin in _operators(frame, inputs):
            parts = _for_many(frame, node)
            for argument in _arguments_read(children[0]):
                for part in parts or [node]:
                    if argument < begin:
                        yield part, Point.BEFORE_OP, argument
                    elif argument < len(inputs) and split(inputs[argument])[0] == node:
                        yield part, Point.AFTER_OP, split(inputs[argument])[1]


def _computes_tangents(frame: Frame, call: str) -> bool:
    """Tell whether a call computes tangents that somebody asks for.

    Those of a branch are computed by the gradient of the branch, and the call in it never runs.
    """
    name = title(frame.children[call][0].graph)
    if frame.body.nodes[call].op not in FUNCTION_CALLS or _TANGENTS.search(name) is None:
        return False
    runs = not frame.running.isdisjoint([call, *_for_many(frame, call)])
    return runs or frame.attr in BRANCHES


def _for_many(frame: Frame, node: str) -> list[str]:
    """List the nodes that do what a node does for many elements at once; none for most nodes."""
    first, last = notes_of(frame.graph).vectorized.get(frame.operations[node].name, (0, 0))
    if first == last:
        return []
    return [name for name, other in frame.operations.items() if first < other._id <= last]


def _operators(frame: Frame, inputs: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Find the operator that a call takes all inputs of, and then all outputs; and how many inputs.

    There is one, unless somebody has rewritten the graph.
    """
    for begin, tensor in enumerate(inputs):
        node, output = split(tensor)
        if output == 0 and frame.inputs.get(node) == list(inputs[:begin]):
            yield node, begin
            return


def _arguments_read(function: Frame) -> Iterator[int]:
    """List the arguments of a function of which it reads more than the shape."""
    for node in function.running & function.inputs.keys():
        if function.body.nodes[node].op not in SHAPE_ALONE:
            for tensor in function.inputs[node]:
                if (argument := function.body.argument(tensor)) is not None:
                    yield argument
