"""Stages are inserted around single operators, and around their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda.driving import Point

from amanda_tensorflow.graph.gradients import carrying
from amanda_tensorflow.graph.rows import with_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amanda_tensorflow.composites import Anchor
    from amanda_tensorflow.rewriting.edits import Edits
    from amanda_tensorflow.rewriting.nodes import StageNodes
    from amanda_tensorflow.rewriting.reading import Readers

    Points = dict[Point, list[int]]


class AroundOperators:
    """This inserts stages around operators: each takes what routines before it return."""

    def __init__(self, nodes: StageNodes, readers: Readers) -> None:
        self._nodes = nodes
        self._readers = readers

    def after(self, edits: Edits, anchor: Anchor, points: Points) -> None:
        """Have the rest of the graph read what stages after an operator, or for it, give."""
        if not isinstance(anchor, str):
            return
        node = edits.frame.body.nodes[anchor]
        raw = [f"{anchor}:{index}" for index in range(len(edits.frame.body.dtypes(node)))]
        outputs: list[str | None] = list(raw)
        for number in points[Point.REPLACE_OP] + points[Point.REPLACE_BACKWARD_OP]:
            name = self._nodes.place(edits, number)
            outputs = [f"{name}:{index}" for index in range(len(raw))]
            edits.last[anchor] = name
            edits.replaced.add(anchor)
        for number in points[Point.AFTER_OP] + points[Point.AFTER_BACKWARD_OP]:
            controls = () if outputs else (anchor,)
            edits.last[anchor] = self._nodes.emit(edits, number, outputs, controls)
        for before, now in zip(raw, outputs, strict=True):
            if now is not None and now != before:
                edits.after[before] = now

    def on_grad_inputs(self, edits: Edits, anchor: Anchor, points: Points) -> None:
        """Have everyone outside a gradient take what stages on the gradients of inputs return."""
        if not isinstance(anchor, int) or not points[Point.ON_GRAD_INPUTS]:
            return
        call = edits.frame.gradients.calls[anchor]
        raw = edits.tensors(with_rows(edits.frame.graph, call.grad_inputs)[0])
        gradients = [None if t is None else edits.after.get(t, t) for t in raw]
        self._chain(edits, points[Point.ON_GRAD_INPUTS], gradients)
        for before, now in zip(raw, gradients, strict=True):
            if before is not None and now is not None:
                edits.outer[before] = now

    def before(self, edits: Edits, anchor: Anchor, points: Points) -> None:
        """Have an operator take what stages before it return."""
        if not isinstance(anchor, str):
            return
        if not (points[Point.BEFORE_OP] or points[Point.REPLACE_OP]):
            return
        inputs: list[str | None] = [*edits.taken(anchor)]
        self._before_node(edits, anchor, points[Point.BEFORE_OP], inputs, range(len(inputs)))
        for number in points[Point.REPLACE_OP]:
            self._nodes.connect(edits, number, inputs, edits.controls(anchor))

    def on_grad_outputs(self, edits: Edits, anchor: Anchor, points: Points) -> None:
        """Have a gradient take what stages on the gradients of the outputs return."""
        if not isinstance(anchor, int):
            return
        call = edits.frame.gradients.calls[anchor]
        raw = edits.tensors(with_rows(edits.frame.graph, call.grad_outputs)[0])
        gradients = [
            None if t is None else edits.grad_outputs.get((call, t)) or edits.current(t)
            for t in raw
        ]
        self._chain(edits, points[Point.ON_GRAD_OUTPUTS], gradients)
        for before, now in zip(raw, gradients, strict=True):
            if before is not None and now is not None:
                edits.grad_outputs[call, before] = now

    def before_backward(self, edits: Edits, anchor: Anchor, points: Points) -> None:
        """Have a backward operator take what stages before it return."""
        before, replace = points[Point.BEFORE_BACKWARD_OP], points[Point.REPLACE_BACKWARD_OP]
        if not isinstance(anchor, str) or not (before or replace):
            return
        call = edits.frame.gradients.of_node[anchor]
        positions = dict(carrying(edits.frame, call))[anchor]
        inputs: list[str | None] = [
            self._readers.read(edits, anchor, t) for t in edits.frame.inputs[anchor]
        ]
        gradients = self._before_node(edits, anchor, before, inputs, positions)
        for number in replace:
            self._nodes.connect(edits, number, gradients, edits.controls(anchor))

    def _before_node(
        self,
        edits: Edits,
        anchor: str,
        numbers: Iterable[int],
        inputs: list[str | None],
        positions: Sequence[int],
    ) -> list[str | None]:
        """Run stages on some inputs of a node, and give it what they return."""
        chosen = [inputs[position] for position in positions]
        for number in numbers:
            name = self._nodes.emit(edits, number, chosen, edits.controls(anchor))
            edits.waits[anchor].append(name)
        for position, tensor in zip(positions, chosen, strict=True):
            inputs[position] = tensor
        edits.inputs_of[anchor] = [tensor for tensor in inputs if tensor is not None]
        return chosen

    def _chain(self, edits: Edits, numbers: Iterable[int], tensors: list[str | None]) -> None:
        for number in numbers:
            self._nodes.emit(edits, number, tensors, ())
