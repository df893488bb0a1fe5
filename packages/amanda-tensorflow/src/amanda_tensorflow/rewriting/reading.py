"""Once stages are inserted, every node is made to read the right version of each tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_tensorflow.graph.body import control_inputs, set_inputs, split
from amanda_tensorflow.graph.node_types import STRUCTURE
from amanda_tensorflow.rewriting.stacks import serves_several

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda_tensorflow.graph.body import Body
    from amanda_tensorflow.rewriting.edits import Edits
    from amanda_tensorflow.rewriting.versions import Versions


class Readers:
    """This has each node of a frame read what ``docs/semantics.md#s3-gradients`` says."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions

    def read(self, edits: Edits, reader: str, tensor: str) -> str:
        """Find what a node reads for a tensor."""
        gradients = edits.frame.gradients
        call = gradients.of_node.get(reader)
        if call is None or serves_several(edits.frame, reader):
            return edits.seen_by(tensor, reader)
        version = self._versions.of_call(edits.frame, reader, tensor, call)
        if version is not None:
            return version
        if (call, tensor) in edits.grad_outputs:
            return edits.grad_outputs[call, tensor]
        if gradients.of_node.get(split(tensor)[0]) is call:
            return edits.after.get(tensor, tensor)
        return edits.seen_by(tensor, reader)

    def rewire(self, edits: Edits) -> None:
        """Have every node of a frame, and who asks for its results, read what they are to read."""
        frame, body = edits.frame, edits.frame.body
        for name, inputs in frame.inputs.items():
            node = body.nodes[name]
            data = edits.inputs_of.get(name) or [self.read(edits, name, t) for t in inputs]
            added = list(node.input)[len(inputs) :]  # what passing values down has added
            data = [*data, *(tensor for tensor in added if not tensor.startswith("^"))]
            control = [edits.last.get(n, n) for n in control_inputs(node)]
            control += edits.waits.get(name, ())
            if node.op not in STRUCTURE:
                control += self._unread_stages(edits, name, data)
            if node.op == "LoopCond" and edits.hosts:
                data = [_both(body, f"{name}/amanda/condition", data[0])]
            if data != inputs or control != control_inputs(node):
                set_inputs(node, data, control)
                frame.mark_edited()
        count = len(frame.outputs)
        body.outputs[:count] = [edits.current(tensor) for tensor in frame.outputs]
        body.controls = [edits.last.get(name, name) for name in body.controls]
        if frame.attr == "cond" and frame.host:
            body.outputs = [_both(body, "amanda/condition", body.outputs[0])]

    def _unread_stages(self, edits: Edits, reader: str, data: Sequence[str]) -> list[str]:
        """List stages after an operator that a reader must wait for, as they give it nothing."""
        if not edits.last:
            return []
        call = edits.frame.gradients.of_node.get(reader)
        producers = {split(tensor)[0] for tensor in data}
        if call is not None:
            producers.discard(edits.frame.node(call.forward) or "")
        return [edits.last[name] for name in sorted(producers) if name in edits.last]


def _both(body: Body, name: str, condition: str) -> str:
    """Repeat the condition of a loop: TensorFlow crashes on a comparison that reads no constant."""
    body.add(name, "LogicalAnd", [condition] * 2)
    return f"{name}:0"
