"""Tools may do less to the operators of a function that has a custom gradient.

A custom gradient stands for the gradient of all that its function runs. It is right for what tools
make of that (``docs/semantics.md#s3-gradients``) where it is the same function of other inputs, or
has another result: then the gradient reads the inputs that the function takes, and its own result.
Anything else would part the function from its gradient, and is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda.driving import Point

from amanda_tensorflow._internals import attributes
from amanda_tensorflow.composites import Group, uses_of
from amanda_tensorflow.graph.body import split
from amanda_tensorflow.graph.layers import LayerAnchor
from amanda_tensorflow.graph.wanted import source_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.layers import Layer
    from amanda_tensorflow.routines.stages import Stage


def keep_to_custom_gradients(frames: Sequence[Frame], stages: Sequence[Stage]) -> None:
    """Have no routine part a function from its custom gradient.

    Of routines on the host it is known only as they run whether they replace anything; until then
    they may look.

    Args:
        frames: all frames.
        stages: all that is to be inserted into them; the positions that a routine on the host must
            not replace are fixed.

    Raises:
        UnsupportedError: a pure routine, or one in place of an operator, would part them.
    """
    forward = [stage for stage in stages if stage.is_forward]
    if not forward:
        return
    for index, frame in enumerate(frames):
        for operator, nodes in frame.gradients.custom.items():
            if _is_differentiated(frames, frame, operator):
                part = _ForwardPart(frame, nodes)
                why = _why(frame, operator)
                inner = {frames.index(child) for child in part.called()}
                for stage in forward:
                    if stage.frame == index:
                        stage.keep(list(part.parted(stage)), why)
                    elif stage.frame in inner:
                        stage.keep(list(stage.changed), why)


def _is_differentiated(frames: Sequence[Frame], frame: Frame, operator: str) -> bool:
    definition = frames[0].definition
    if definition is not None and attributes.BACKWARD_FUNCTION in definition.attr:
        return True
    return any(
        call.forward == operator
        and call.forward_graph() is frame.graph
        and not other.running.isdisjoint(other.gradients.nodes_of[call])
        for other in frames
        for call in other.gradients.calls
    )


def _why(frame: Frame, operator: str) -> str:
    """Tell why a part of what has a custom gradient cannot be changed, and what can be done."""
    if operator in frame.gradients.vectorized:
        return (
            f"it does a part of what {operator!r} computes for many elements at once, and the "
            "gradient, which was vectorized by itself, would stay that of the unchanged operator; "
            "map by tf.map_fn, take the gradient outside of tf.vectorized_map, or exclude the "
            "operator by ops="
        )
    return (
        f"it is a part of {operator!r}, which has a custom gradient, and that would stay the "
        "gradient of the unchanged function; replace what all of the function takes, or its "
        "result, exclude the operator by ops=, or write the function without a custom gradient"
    )


class _ForwardPart:
    """A forward part is the nodes whose gradient a custom gradient gives."""

    def __init__(self, frame: Frame, nodes: Sequence[str]) -> None:
        self._frame = frame
        self._nodes = set(nodes)
        self._readers: dict[str, set[tuple[str, int]]] = {}
        for node in nodes:
            if frame.body.nodes[node].op != "Identity":
                for position in range(len(frame.inputs[node])):
                    place = node, position
                    self._readers.setdefault(self._taken(*place), set()).add(place)

    def called(self) -> Iterator[Frame]:
        """List the frames of the functions that these nodes call."""
        for node in self._nodes:
            for child in self._frame.children.get(node, ()):
                yield from child.walk()

    def parted(self, stage: Stage) -> Iterator[int]:
        """List positions of tensors that a stage may replace, but that must stay what they are."""
        anchor = stage.anchor
        if isinstance(anchor, LayerAnchor):
            yield from self._parted_by_layer(stage, self._frame.layers.calls[anchor.layer])
            return
        if isinstance(anchor, Group):
            root, parts = anchor.root, set(anchor.parts)
        else:
            root, parts = str(anchor), {str(anchor)}
        if self._nodes.isdisjoint(parts):
            return
        for position in stage.changed:
            if stage.point is not Point.BEFORE_OP:
                if self._readers.get(source_of(self._frame, f"{root}:{position}")):
                    yield position
                continue
            uses = uses_of(anchor if isinstance(anchor, Group) else root, position)
            tensor = self._taken(*uses[0])
            readers = self._readers.get(tensor, set())
            if split(tensor)[0] in self._nodes or not readers.issubset(uses):
                yield position

    def _parted_by_layer(self, stage: Stage, layer: Layer) -> Iterator[int]:
        """List such positions at a layer: tensors made here, or that some nodes read unchanged."""
        before, inside = stage.point is Point.BEFORE_OP, set(layer.nodes)
        for position in stage.changed:
            tensor = self._frame.tensor((layer.inputs if before else layer.outputs)[position])
            readers = {node for node, _ in self._readers.get(source_of(self._frame, tensor), ())}
            changed = readers & inside if before else readers - inside
            if changed and (split(tensor)[0] in self._nodes or changed != readers):
                yield position

    def _taken(self, node: str, position: int) -> str:
        return source_of(self._frame, self._frame.inputs[node][position])
