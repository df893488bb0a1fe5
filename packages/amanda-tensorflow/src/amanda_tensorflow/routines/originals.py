"""A routine that replaces an operator may run the operator itself."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf
from amanda import UnsupportedError

from amanda_tensorflow._internals import (
    atomic_function,
    context,
    execute,
    function_def_to_graph,
    function_pb2,
    ops,
    tensor_util,
)
from amanda_tensorflow.graph.attributes import flat_attrs
from amanda_tensorflow.graph.body import Body, control_inputs, data_inputs, set_inputs, split
from amanda_tensorflow.graph.called_functions import find_function, functions_of, signatures
from amanda_tensorflow.routines.host_threads import Waiting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amanda.driving import Action

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.layers import Layer

_serials = itertools.count()

# These attributes belong to a node's place in its graph, not to what it does.
_OF_ITS_PLACE = ("_class", "_output_shapes")


class _Part(NamedTuple):
    """This is a node of an operator.

    Attributes:
        name, type: its own.
        attrs: its attributes, as they are written in a graph.
        flat: the same, as what runs an operator in no graph takes them.
        sources: what it takes: an input of the operator, or a result of another node.
        dtypes: of what it gives.
    """

    name: str
    type: str
    attrs: Mapping[str, Any]
    flat: Sequence[Any]
    sources: Sequence[int | tuple[str, int]]
    dtypes: Sequence[Any]

    def made(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Make it in the graph that is being built, and return its outputs."""
        graph = ops.get_default_graph()
        made = graph._create_op_internal(self.type, inputs, self.dtypes, attrs=self.attrs)
        return list(made.outputs)

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run it at once, and return its outputs.

        That is in this thread: for a function TensorFlow would take another one of those of which
        the routine holds one already, and none might be left.
        """
        if self.type == "Const":  # of which the value is an attribute
            return [tf.constant(tensor_util.MakeNdarray(self.attrs["value"].tensor))]
        count, attrs = len(self.dtypes), tuple(self.flat)
        return list(execute.execute(self.type, count, list(inputs), attrs, context.context()))


class Rerun:
    """This makes an operator's nodes anew, in the graph of a routine or at once.

    Args:
        action: the routine.
        named: the operator, for messages.
        operations: its nodes, those that it needs first; the last one gives its outputs.
        inputs: the tensors that it takes.

    Attributes:
        externals: what it reads and is not given: nothing.
        tensors: these, as tensors of the graph.

    Raises:
        UnsupportedError: it cannot be made anew.
    """

    externals: Sequence[str] = ()
    tensors: Sequence[Any] = ()

    def __init__(
        self, action: Action, named: str, operations: Sequence[Any], inputs: Sequence[Any]
    ) -> None:
        places = {(tensor.op.name, tensor.value_index): i for i, tensor in enumerate(inputs)}
        parts = {operation.name for operation in operations}
        self._parts: list[_Part] = []
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
            attrs = {key: value for key, value in node.attr.items() if key not in _OF_ITS_PLACE}
            dtypes = [output.dtype for output in operation.outputs]
            flat = flat_attrs(operation)
            self._parts.append(_Part(node.name, node.op, attrs, flat, sources, dtypes))

    def __call__(self, inputs: Sequence[Any], externals: Sequence[Any] = ()) -> Sequence[Any]:
        """Run the operator for these inputs, and return its outputs."""
        tensors = [tf.convert_to_tensor(t) if not _is_handle(t) else t for t in inputs]
        eager, made = tf.executing_eagerly(), dict[str, Any]()
        outputs: Sequence[Any] = ()
        for part in self._parts:
            taken = [
                tensors[source] if isinstance(source, int) else made[source[0]][source[1]]
                for source in part.sources
            ]
            outputs = made[part.name] = part.run(taken) if eager else part.made(taken)
        return outputs


def _is_handle(tensor: Any) -> bool:
    return bool(getattr(tensor, "dtype", None) == tf.resource)


class LayerRerun:
    """This runs a layer's own operators, in the graph of a routine or at once.

    Args:
        action: the routine.
        named: the layer, for messages.
        frame: where it is, not edited yet.
        layer: the layer.

    Attributes:
        externals: the tensors of the frame that it reads and is not given, such as its variables.
        tensors: these, as tensors of the graph.

    Raises:
        UnsupportedError: they cannot be run anew.
    """

    def __init__(self, action: Action, named: str, frame: Frame, layer: Layer) -> None:
        self._named = named
        nodes = {name: frame.body.nodes[name] for name in layer.nodes if name in frame.body.nodes}
        inputs = [frame.tensor(name) for name in layer.inputs]
        outputs = [frame.tensor(name) for name in layer.outputs]
        read = [t for name in nodes for t in frame.inputs[name] if split(t)[0] not in nodes]
        read += [tensor for tensor in outputs if split(tensor)[0] not in nodes]
        self.externals = [tensor for tensor in dict.fromkeys(read) if tensor not in inputs]
        self.tensors = [frame.graph_tensor(tensor) for tensor in self.externals]
        self._check(action, named, frame)
        self._outputs = [frame.graph_tensor(tensor).shape for tensor in outputs]
        given = [*inputs, *self.externals]
        arguments = [(f"argument_{at}", frame.body.dtype(t)) for at, t in enumerate(given)]
        places = {tensor: f"argument_{given.index(tensor)}:0" for tensor in given}
        copies = {}
        for name, node in nodes.items():
            copy = copies[name] = type(node)()
            copy.CopyFrom(node)
            copy.attr.pop("_class", None)
            set_inputs(
                copy,
                [places.get(tensor, tensor) for tensor in data_inputs(node)],
                [n for n in control_inputs(node) if n in nodes],
            )
        effects = [name for name in nodes if frame.body.is_stateful(name)]
        returned = [places.get(tensor, tensor) for tensor in outputs]
        body = Body(copies, arguments, returned, effects, signatures(frame.graph))
        body.definition = function_pb2.FunctionDef()
        definition = body.to_function(f"amanda_layer_{next(_serials)}")
        self._function = _callable(frame, definition)

    def _check(self, action: Action, named: str, frame: Frame) -> None:
        if any(tensor.dtype == tf.variant or tensor.dtype._is_ref_dtype for tensor in self.tensors):
            why = "reads a list or a variable of version 1 from outside of it"
        elif frame.outermost.function is None and any(t.dtype == tf.resource for t in self.tensors):
            why = "reads variables of a session"
        else:
            return
        raise UnsupportedError(
            f"{action.tool.name}: {named} {why}, and cannot be run in its replacement; "
            "drop original=True"
        )

    def __call__(self, inputs: Sequence[Any], externals: Sequence[Any] = ()) -> Sequence[Any]:
        """Run the layer for these inputs, and return its outputs."""
        tensors = [
            t if _is_handle(t) else tf.convert_to_tensor(t, spec.dtype)
            for t, spec in zip(
                [*inputs, *externals], self._function.function_type.flat_inputs, strict=True
            )
        ]
        waiting = Waiting(f"{self._named}, run by a host routine that replaces it,")
        try:
            outputs = list(self._function.call_flat(*tensors))
        finally:
            waiting.end()
        for output, shape in zip(outputs, self._outputs, strict=True):
            if not tf.executing_eagerly():
                output.set_shape(shape)
        return outputs


def _callable(frame: Frame, definition: Any) -> Any:
    """Make an AtomicFunction of a definition that may call functions that a frame's nodes call."""
    with ops.Graph().as_default() as library:
        for node in definition.node_def:
            for _, name in functions_of(node):
                if (function := find_function(frame.graph, name)) is not None:
                    library._add_function_recursive(function)
        graph = function_def_to_graph.function_def_to_graph(definition)
        return atomic_function.from_func_graph(definition.signature.name, graph, definition.attr)
