"""The operator itself, for a routine that replaces it and wants to run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from amanda import UnsupportedError

from amanda_tensorflow._internals import ops
from amanda_tensorflow.graph.called_functions import functions_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda.driving import Action

# What belongs to the place of a node, not to what it does.
_OF_ITS_PLACE = ("_class", "_output_shapes")


class Rerun:
    """Makes an operator's nodes anew, in the graph of a routine or at once.

    Args:
        action: the routine.
        named: the operator, for messages.
        operations: its nodes, those that it needs first; the last one gives its outputs.
        inputs: the tensors that it takes.

    Raises:
        UnsupportedError: it cannot be made anew.
    """

    def __init__(
        self, action: Action, named: str, operations: Sequence[Any], inputs: Sequence[Any]
    ) -> None:
        places = {(tensor.op.name, tensor.value_index): i for i, tensor in enumerate(inputs)}
        parts = {operation.name for operation in operations}
        self._nodes: list[tuple[Any, list[int | tuple[str, int]], list[Any]]] = []
        for operation in operations:
            node = operation.node_def
            refers = any(argument.is_ref for argument in operation.op_def.input_arg)
            if functions_of(node) or refers or any(t.dtype == tf.variant for t in inputs):
                raise UnsupportedError(
                    f"{action.tool.name}: {named} calls functions of its graph, writes to "
                    "a variable of version 1, or takes what is no tensor, and cannot be run in its "
                    "replacement; drop original=True"
                )
            sources: list[int | tuple[str, int]] = []
            for position, tensor in enumerate(operation.inputs):
                place = tensor.op.name, tensor.value_index
                if len(operations) == 1:
                    sources.append(position)
                elif place[0] in parts:
                    sources.append(place)
                else:
                    sources.append(places[place])
            self._nodes.append((node, sources, [output.dtype for output in operation.outputs]))
        self._run = tf.function(self._made, autograph=False)

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The outputs for these inputs."""
        tensors = [tf.convert_to_tensor(t) if not _is_handle(t) else t for t in inputs]
        found = self._run(tensors) if tf.executing_eagerly() else self._made(tensors)
        return list(found)

    def _made(self, inputs: Sequence[Any]) -> Sequence[Any]:
        made: dict[str, Any] = {}
        graph = ops.get_default_graph()
        outputs: Sequence[Any] = ()
        for node, sources, dtypes in self._nodes:
            taken = [
                inputs[source] if isinstance(source, int) else made[source[0]][source[1]]
                for source in sources
            ]
            attrs = {key: value for key, value in node.attr.items() if key not in _OF_ITS_PLACE}
            operation = graph._create_op_internal(node.op, taken, dtypes, attrs=attrs)
            outputs = made[node.name] = list(operation.outputs)
        return outputs


def _is_handle(tensor: Any) -> bool:
    return bool(getattr(tensor, "dtype", None) == tf.resource)
