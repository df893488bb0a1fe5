"""A routine that replaces an operator may run the operator itself."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any, cast

import tensorflow as tf
from amanda import UnsupportedError

from amanda_tensorflow._internals import atomic_function, function_def_to_graph, function_pb2, ops
from amanda_tensorflow.graph.body import Body, control_inputs, data_inputs, set_inputs, split
from amanda_tensorflow.graph.called_functions import find_function, functions_of, signatures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda.driving import Action

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.layers import Layer

_serials = itertools.count()

# These attributes belong to a node's place in its graph, not to what it does.
_OF_ITS_PLACE = ("_class", "_output_shapes")


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
        self._dtypes = [tensor.dtype.base_dtype for tensor in inputs]

    def __call__(self, inputs: Sequence[Any], externals: Sequence[Any] = ()) -> Sequence[Any]:
        """Run the operator for these inputs, and return its outputs."""
        tensors = [tf.convert_to_tensor(t) if not _is_handle(t) else t for t in inputs]
        return list(self._run(*tensors) if tf.executing_eagerly() else self._made(*tensors))

    @functools.cached_property
    def _run(self) -> Callable[..., Sequence[Any]]:
        """Trace it once for tensors of all shapes: for each new one TensorFlow would warn of it."""
        specs = [tf.TensorSpec(None, dtype) for dtype in self._dtypes]
        run = tf.function(self._made, autograph=False).get_concrete_function(*specs)
        return cast("Callable[..., Sequence[Any]]", run)

    def _made(self, *inputs: Any) -> Sequence[Any]:
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
        outputs = list(self._function.call_flat(*tensors))
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
