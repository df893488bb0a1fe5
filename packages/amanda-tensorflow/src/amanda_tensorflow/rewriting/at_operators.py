"""In an operator's own frame, this finds the version that its gradient, or a routine, reads."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from amanda_tensorflow._internals import types_pb2
from amanda_tensorflow.graph.body import split
from amanda_tensorflow.graph.wanted import Wanted, same, source_of
from amanda_tensorflow.notes import notes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from amanda.driving import Ask

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.notes import GradientCall
    from amanda_tensorflow.rewriting.edits import Edits

    # What a node that computes the gradient of an operator reads for a tensor.
    OfCall = Callable[[Frame, str, str, GradientCall], str | None]


class AtOperators:
    """This finds versions of tensors in the frame that an operator is in.

    Args:
        edits: what is inserted into each frame.
    """

    def __init__(self, edits: Mapping[Frame, Edits]) -> None:
        self._edits = edits
        self._gradients: dict[Frame, dict[str, list[tuple[str, str]]]] = {}

    def version(self, frame: Frame, tensor: str, operator: Wanted, of_call: OfCall) -> str | None:
        """Find what a tensor is for an operator's gradient here, or for a routine that asks."""
        if operator.graph != notes_of(frame.graph).number or operator.loops:
            return None
        if operator.ask is not None:  # a list or optional brings one with it in it
            in_other = frame.body.dtype(tensor) == types_pb2.DT_VARIANT
            return None if in_other else self.asked(frame, operator)
        node = frame.node(operator.operator)
        return node and self._at(frame, tensor, node, operator.again, of_call)

    def asked(self, frame: Frame, wanted: Wanted) -> str | None:
        """Find what a routine asks for of an operator of this frame."""
        node, ask, edits = frame.node(wanted.operator), wanted.ask, self._edits[frame]
        assert ask is not None
        if node is None or node not in frame.inputs:
            return None
        if wanted.layer is not None:
            return _asked_of_layer(edits, wanted.layer, ask)
        if ask.what == "outputs":
            return f"{node}:{ask.index}"
        if ask.what == "inputs":
            return str(edits.taken(node)[ask.index])
        return str(edits.current(frame.inputs[node][ask.index]))

    def operators(self, frame: Frame, tensor: str, of_call: OfCall) -> Iterator[Wanted]:
        """List operators of this frame whose gradients need another version of a tensor of it.

        Nodes that compute gradients are among them, for gradients of gradients.
        """
        edits, number = self._edits[frame], notes_of(frame.graph).number
        if tensor in edits.after:
            yield Wanted(number, frame.operations[split(tensor)[0]].name)
        for node in edits.inputs_of:
            times = sum(same(frame, t, tensor) for t in frame.inputs[node])
            for again in range(times):
                yield Wanted(number, frame.operations[node].name, again)
        for operator, nodes in frame.gradients.custom.items():
            if self._in_forward_part(frame, tensor, nodes):
                yield Wanted(number, operator)
        for call, gradient in edits.grad_outputs:
            for node in frame.gradients.nodes_of[call]:
                if gradient in frame.inputs[node] and same(frame, gradient, tensor):
                    yield Wanted(number, frame.operations[node].name)
        for node, taken in self._read_by_gradients(frame).get(source_of(frame, tensor), ()):
            if of_call(frame, node, taken, frame.gradients.of_node[node]):
                yield Wanted(number, frame.operations[node].name)

    def _read_by_gradients(self, frame: Frame) -> Mapping[str, list[tuple[str, str]]]:
        """List for each tensor, by what it is a copy of, the nodes that read it for a gradient."""
        if frame not in self._gradients:
            readers = self._gradients[frame] = collections.defaultdict(list)
            for node in frame.gradients.of_node:
                for tensor in frame.inputs[node]:
                    readers[source_of(frame, tensor)].append((node, tensor))
        return self._gradients[frame]

    def _at(
        self, frame: Frame, tensor: str, operator: str, again: int, of_call: OfCall
    ) -> str | None:
        """Find the version in the operator's own frame: an output of it, or what it takes."""
        edits = self._edits[frame]
        if split(tensor)[0] == operator:
            return tensor if tensor in edits.after else None
        custom = frame.gradients.custom.get(frame.operations[operator].name)
        if custom is not None:
            return self._in_forward_part(frame, tensor, custom)
        if operator not in edits.inputs_of:
            return self._at_gradient(frame, tensor, operator, of_call)
        taken = [
            (original, str(substituted))
            for original, substituted in zip(
                frame.inputs[operator], edits.inputs_of[operator], strict=True
            )
            if same(frame, original, tensor)
        ]
        if again >= len(taken):
            return None
        original, substituted = taken[again]
        return None if substituted == edits.current(original) else substituted

    def _at_gradient(self, frame: Frame, tensor: str, node: str, of_call: OfCall) -> str | None:
        """Find what a node that computes a gradient takes, for the gradient of that gradient."""
        call = frame.gradients.of_node.get(node)
        taken = next((t for t in frame.inputs[node] if same(frame, t, tensor)), None)
        if call is None or taken is None:
            return None
        came_in = self._edits[frame].grad_outputs.get((call, taken))
        return came_in or of_call(frame, node, taken, call)

    def _in_forward_part(self, frame: Frame, tensor: str, nodes: Sequence[str]) -> str | None:
        """Find what nodes take whose gradient a custom gradient gives, or what one of them gives.

        All that take a tensor take the same for it, see
        :mod:`amanda_tensorflow.decisions.custom_gradients`.
        """
        edits = self._edits[frame]
        if tensor in edits.after and split(tensor)[0] in nodes:
            return tensor
        for node in nodes:
            for original, substituted in zip(
                frame.inputs[node], edits.inputs_of.get(node, ()), strict=False
            ):
                if substituted != edits.current(original) and same(frame, original, tensor):
                    return str(substituted)
        return None


def _asked_of_layer(edits: Edits, number: int, ask: Ask) -> str | None:
    """Find what a routine asks for of a layer, as a tensor of the frame that the layer is in."""
    layer = edits.frame.layers.calls[number]
    names = layer.outputs if ask.what == "outputs" else layer.inputs
    (tensor,) = edits.tensors([names[ask.index]])
    path = layer.path if ask.what == "given" else (*layer.path, number)
    return None if tensor is None else edits.seen(tensor, path)
