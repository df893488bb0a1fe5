"""Stages are inserted around calls of layers: around all the nodes that one has made.

What runs before a layer is between it and who gives it its inputs, and who is in the layer reads
what that returns. What runs after it is read by everybody outside of it. Layers lie in others, so
what a node reads depends on the calls that the tensor leaves and enters on its way there: see
:meth:`Edits.seen`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda.driving import Point

from amanda_tensorflow.graph.layers import LayerAnchor, LayerGradient
from amanda_tensorflow.graph.rows import with_rows
from amanda_tensorflow.rewriting.parts import Parts, on_sums

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amanda_tensorflow.composites import Anchor
    from amanda_tensorflow.graph.layers import Layer
    from amanda_tensorflow.notes import GradientCall
    from amanda_tensorflow.rewriting.edits import Edits
    from amanda_tensorflow.rewriting.nodes import StageNodes

    Points = dict[Point, list[int]]


class AroundLayers:
    """This inserts stages around layers: nodes in one read what routines before it return."""

    def __init__(self, nodes: StageNodes) -> None:
        self._nodes = nodes

    def after(self, edits: Edits, anchor: Anchor, points: Points) -> None:
        """Have everybody outside read what stages after a layer return; of inner layers first."""
        if not isinstance(anchor, LayerAnchor):
            return
        layer = edits.frame.layers.calls[anchor.layer]
        tensors = edits.tensors(layer.outputs)
        inside = [tensor and edits.after.get(tensor, tensor) for tensor in tensors]
        outside = list(inside)
        for number in points[Point.REPLACE_OP]:
            name = self._nodes.place(edits, number)
            outside = [f"{name}:{index}" for index in range(len(outside))]
            edits.replaced_layers.append((layer, name))
        for number in points[Point.AFTER_OP]:
            done = () if any(outside) else _ends(edits, layer)
            self._nodes.emit(edits, number, outside, done)
        for tensor, before, now in zip(tensors, inside, outside, strict=True):
            if tensor is not None and before is not None and now is not None and now != before:
                edits.exits.setdefault(tensor, []).append((layer.number, before))
                edits.after[tensor] = now

    def before(self, edits: Edits, anchor: Anchor, points: Points) -> None:
        """Have everybody inside read what stages before a layer return; of outer layers first."""
        if not isinstance(anchor, LayerAnchor):
            return
        layer = edits.frame.layers.calls[anchor.layer]
        tensors = edits.tensors(layer.inputs)
        inputs = [tensor and edits.seen(tensor, layer.path) for tensor in tensors]
        for number in points[Point.BEFORE_OP]:
            name = self._nodes.emit(edits, number, inputs, ())
            # one that is given twice is replaced where it is given first
            inputs = [inputs[tensors.index(tensor)] for tensor in tensors]
            if self._nodes.has_effects(number):
                for node in _beginnings(edits, layer, tensors):
                    edits.waits[node].append(name)
        if points[Point.BEFORE_OP]:
            edits.enters[layer.number] = {
                tensor: now
                for tensor, now in zip(tensors, inputs, strict=True)
                if tensor is not None and now is not None
            }
        for number in points[Point.REPLACE_OP]:
            path = (*layer.path, layer.number)
            externals = [edits.seen(tensor, path) for tensor in self._nodes.externals(number)]
            self._nodes.connect(edits, number, [*inputs, *externals], ())

    def read(self, edits: Edits) -> None:
        """Give the nodes within layers what they read, now that all is inserted around those."""
        if not (edits.enters or edits.exits):
            return
        layers, gradients = edits.frame.layers, edits.frame.gradients
        changed = edits.exits.keys() | {t for entered in edits.enters.values() for t in entered}
        for node, inputs in edits.frame.inputs.items():
            path = layers.path(node)
            if path and node not in gradients.of_node and not changed.isdisjoint(inputs):
                seen = [edits.seen(tensor, path) for tensor in inputs]
                if seen != [edits.current(tensor) for tensor in inputs]:
                    edits.inputs_of[node] = seen

    def on_grad_inputs(self, edits: Edits, anchor: Anchor, points: Points) -> None:
        """Have those outside read what stages on gradients of inputs return; inner layers first."""
        if isinstance(anchor, LayerGradient) and points[Point.ON_GRAD_INPUTS]:
            on_sums(self._nodes, edits, points[Point.ON_GRAD_INPUTS], anchor.uses)

    def on_grad_outputs(self, edits: Edits, anchor: Anchor, points: Points) -> None:
        """Have those inside read what stages on gradients of results return; outer layers first."""
        numbers = points[Point.ON_GRAD_OUTPUTS]
        if not isinstance(anchor, LayerGradient) or not numbers:
            return
        calls = edits.frame.gradients.calls
        places: list[tuple[GradientCall, str] | None] = []
        values: list[str | None] = []
        parts: list[Parts] = []
        for place, sum_of in zip(anchor.outputs, anchor.parts, strict=True):
            parts.append(Parts(edits, list(sum_of)))
            if place is None or sum_of:
                places.append(None)
                values.append(parts[-1].sum)
                continue
            call = calls[place[0]]
            names = with_rows(edits.frame.graph, [call.grad_outputs[place[1]]])[0]
            (tensor,) = edits.tensors(names[:1])
            assert tensor is not None
            places.append((call, tensor))
            values.append(edits.grad_outputs.get((call, tensor)) or edits.current(tensor))
        for number in numbers:
            self._nodes.emit(edits, number, values, ())
        for at, of, now in zip(places, parts, values, strict=True):
            if at is not None and now is not None:
                edits.grad_outputs[at] = now
            else:
                of.replace(now)


def _beginnings(edits: Edits, layer: Layer, inputs: Iterable[str | None]) -> Iterator[str]:
    """List the nodes of a layer that are to wait for what runs before it."""
    body, given = edits.frame.body, set(inputs)
    for node in layer.nodes:
        if body.is_stateful(node) or not given.isdisjoint(edits.frame.inputs[node]):
            yield node


def _ends(edits: Edits, layer: Layer) -> list[str]:
    """List the nodes of a layer that are done when it is."""
    running = [node for node in layer.nodes if node in edits.frame.running]
    effects = [node for node in running if edits.frame.body.is_stateful(node)]
    return [*effects, *running[-1:]]
