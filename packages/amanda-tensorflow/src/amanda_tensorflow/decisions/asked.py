"""Routines ask for tensors of the forward side; this finds those in a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from amanda.driving import Ask

from amanda_tensorflow.graph.layers import tensors
from amanda_tensorflow.graph.node_types import STRUCTURE
from amanda_tensorflow.graph.wanted import Wanted
from amanda_tensorflow.notes import notes_of
from amanda_tensorflow.routines.originals import LayerRerun, Rerun
from amanda_tensorflow.routines.stages import Asked, Spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amanda.driving import Action

    from amanda_tensorflow.composites import Whole
    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.layers import Layer


class ForwardSide(NamedTuple):
    """A forward side is what routines may ask for of an operator: what it takes and gives.

    Attributes:
        graph: the graph that it is in.
        inputs: what it takes.
        outputs: what it gives.
        takes: for each input, the operation that takes it and at which position.
        gives: for each output, the operation that gives it and which of its outputs that is.
        parts: the operations that it is, those first that others need.
    """

    graph: Any
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    takes: Sequence[tuple[str, int]]
    gives: Sequence[tuple[str, int]]
    parts: Sequence[str]

    @classmethod
    def of_operation(cls, operation: Any) -> ForwardSide:
        """Make the forward side of an operation."""
        inputs, outputs = list(operation.inputs), list(operation.outputs)
        return cls(
            operation.graph,
            inputs,
            outputs,
            [(operation.name, position) for position in range(len(inputs))],
            [(operation.name, position) for position in range(len(outputs))],
            [operation.name],
        )

    @classmethod
    def of_whole(cls, whole: Whole, graph: Any) -> ForwardSide:
        """Make the forward side of a composite."""
        composite = whole.composite
        root = graph.get_operation_by_name(composite.parts[-1])
        return cls(
            graph,
            [graph.get_tensor_by_name(f"{name}:{index}") for name, index in composite.inputs],
            [root.outputs[0]],
            [uses[0] for uses in whole.uses(graph)],
            [(root.name, 0)],
            composite.parts,
        )

    def asked(self, asks: Iterable[Ask]) -> dict[Ask, Asked]:
        """Describe each tensor that is asked for, and where it is."""
        number = notes_of(self.graph).number
        found = {}
        for ask in asks:
            of_outputs = ask.what == "outputs"
            name, position = (self.gives if of_outputs else self.takes)[ask.index]
            tensor = (self.outputs if of_outputs else self.inputs)[ask.index]
            wanted = Wanted(number, name, ask=Ask(ask.what, position))
            found[ask] = Asked(Spec.of(tensor), wanted)
        return found

    def rerun(self, action: Action, named: str) -> Rerun:
        """Make a callable that runs the operator itself for a routine that replaces it."""
        operations = [self.graph.get_operation_by_name(part) for part in self.parts]
        operations.sort(key=lambda operation: operation._id)
        return Rerun(action, named, operations, self.inputs)


class LayerSide(NamedTuple):
    """A layer's forward side is what routines may ask for of a call of a layer in a frame."""

    frame: Frame
    layer: Layer

    def asked(self, asks: Iterable[Ask]) -> dict[Ask, Asked]:
        """Describe each tensor that is asked for, and where it is."""
        frame, layer = self.frame, self.layer
        number = notes_of(frame.graph).number
        nodes = [node for node in layer.nodes if frame.operations[node].type not in STRUCTURE]
        inside = frame.operations[nodes[0]].name if nodes else ""
        found = {}
        for ask in asks:
            names = layer.outputs if ask.what == "outputs" else layer.inputs
            (tensor,) = tensors(frame, [names[ask.index]])
            wanted = Wanted(number, inside, ask=ask, layer=layer.number)
            found[ask] = Asked(Spec.of(tensor), wanted)
        return found

    def rerun(self, action: Action, named: str) -> LayerRerun:
        """Make a callable that runs the layer's own operators for a routine that replaces it."""
        return LayerRerun(action, named, self.frame, self.layer)
