"""Tools may not change an operator whose gradient is computed for many elements at once, in places.

What a forward loop hands to such a loop (of a Jacobian through a loop) does not come with versions.
A function, branch or loop that is vectorized is a new one, and so is that of its gradient; nothing
leads from the one to the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda_tensorflow.composites import Group
from amanda_tensorflow.notes import notes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.routines.stages import Stage

    Place = tuple[Any, str]
    """A graph, and the name of an operator in it."""

_WHY = (
    "its gradient is computed by itself for many elements at once, in a loop or a function, and "
    "would be that of the unchanged operator; map by tf.map_fn, take the gradient outside of "
    "tf.vectorized_map, pass experimental_use_pfor=False to GradientTape.jacobian, or exclude the "
    "operator by ops="
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
    anywhere = set(_differentiated(frames))
    in_loops = set(_differentiated(filter(_is_in_loop, frames)))
    for stage in stages if anywhere else ():
        if stage.is_forward and isinstance(stage.anchor, str | Group):
            frame = frames[stage.frame]
            nodes = stage.anchor.parts if isinstance(stage.anchor, Group) else [stage.anchor]
            for name in (frame.operations[node].name for node in nodes):
                stands_for = _stands_for(frame.graph, name)
                if (frame.graph, name) in in_loops or not anywhere.isdisjoint(stands_for):
                    stage.keep(list(stage.changed), _WHY)


def _differentiated(frames: Iterable[Frame]) -> Iterator[Place]:
    """List the operators whose gradients frames compute for many elements at once."""
    for frame in frames:
        for call, nodes in frame.gradients.nodes_of.items():
            if call.vectorized and not frame.running.isdisjoint(nodes):
                yield call.forward_graph(), call.forward


def _stands_for(graph: Any, name: str) -> Iterator[Place]:
    """List the operators of other graphs that one does the work of; a map in a map has two."""
    while graph is not None:
        id = graph.get_operation_by_name(name)._id
        graph, name = next(
            (
                (of(), named)
                for (first, last), of, named in notes_of(graph).vectorized_of
                if first < id <= last
            ),
            (None, ""),
        )
        if graph is not None:
            yield graph, name


def _is_in_loop(frame: Frame | None) -> bool:
    return frame is not None and (frame.attr == "body" or _is_in_loop(frame.parent))
