"""Tools may not change an operator whose gradient in a loop is computed for many elements at once.

What a forward loop hands to such a loop (of a Jacobian through a loop) does not come with versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda.driving import Point

from amanda_tensorflow.composites import Group

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.routines.stages import Stage

_FORWARD = frozenset([Point.BEFORE_OP, Point.REPLACE_OP, Point.AFTER_OP])
_WHY = (
    "its gradient is computed in a loop for many elements at once, and would be that of the "
    "unchanged operator; pass experimental_use_pfor=False to GradientTape.jacobian, or exclude "
    "the operator by ops="
)


def keep_to_vectorized_loops(frames: Sequence[Frame], stages: Sequence[Stage]) -> None:
    """Have no routine change such an operator.

    Args:
        frames: all frames.
        stages: all that is to be inserted into them; the positions that a routine on the host must
            not replace are fixed.

    Raises:
        UnsupportedError: a pure routine, or one in place of an operator, would change it.
    """
    differentiated = set(_differentiated(frames))
    for stage in stages if differentiated else ():
        if stage.point in _FORWARD and isinstance(stage.anchor, str | Group):
            frame = frames[stage.frame]
            nodes = stage.anchor.parts if isinstance(stage.anchor, Group) else [stage.anchor]
            if any((frame.graph, frame.operations[node].name) in differentiated for node in nodes):
                stage.keep(list(stage.changed), _WHY)


def _differentiated(frames: Sequence[Frame]) -> Iterator[tuple[object, str]]:
    """List the graphs and names of the operators whose gradients are computed in such loops."""
    for frame in frames:
        if _is_in_loop(frame):
            for call, nodes in frame.gradients.nodes_of.items():
                if call.vectorized and not frame.running.isdisjoint(nodes):
                    yield call.forward_graph(), call.forward


def _is_in_loop(frame: Frame | None) -> bool:
    return frame is not None and (frame.attr == "body" or _is_in_loop(frame.parent))
