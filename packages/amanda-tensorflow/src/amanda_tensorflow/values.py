"""The values of variables and constants, and of copies of them, are known before a graph runs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from amanda import ValueUnavailableError

from amanda_tensorflow._internals import (
    context,
    errors,
    execute,
    gen_resource_variable_ops,
    resource_variable_ops,
    tensor_util,
)
from amanda_tensorflow.graph.body import split
from amanda_tensorflow.graph.frames import Frame
from amanda_tensorflow.graph.node_types import STRUCTURE
from amanda_tensorflow.notes import notes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def outside_of_graphs() -> Iterator[None]:
    """Open a block that runs eagerly, wherever the program is."""
    with context.eager_mode(), tf.init_scope():
        yield


class ToolVariable(resource_variable_ops.ResourceVariable):  # type: ignore[misc]
    """This is a variable outside of all graphs, which may be assigned wherever the program is."""

    def assign(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        """Assign a new value, also while a graph is being built."""
        with context.eager_mode():
            return super().assign(value, *args, **kwargs)

    def assign_add(self, delta: Any, *args: Any, **kwargs: Any) -> Any:
        """Add to the value, also while a graph is being built."""
        with context.eager_mode():
            return super().assign_add(delta, *args, **kwargs)

    def assign_sub(self, delta: Any, *args: Any, **kwargs: Any) -> Any:
        """Subtract from the value, also while a graph is being built."""
        with context.eager_mode():
            return super().assign_sub(delta, *args, **kwargs)

    def numpy(self) -> Any:
        """Return the value as a NumPy array, also while a graph is being built."""
        with context.eager_mode():
            return super().numpy()


def outer_of(tensor: Any) -> Any:
    """Return the tensor outside that one of a function's graph was captured from, or None."""
    captures = getattr(tensor.graph, "captures", ())
    notes = notes_of(tensor.graph)
    if notes.captures is not captures:
        notes.captured_from = {id(inner): outer for outer, inner in captures}
        notes.captures = captures
    return notes.captured_from.get(id(tensor))


# Their results depend on the shapes of inputs alone, so no values need to be known.
_FROM_SHAPES = frozenset(["Const", "Rank", "Shape", "ShapeN", "Size"])


class Values:
    """This follows a tensor back to what its value is known to be.

    That of a variable or constant is known, and so is what is computed of such values alone.
    """

    def __init__(self) -> None:
        self._homes: dict[Any, Frame] = {}

    def home(self, graph: Any) -> Frame:
        """Return a frame of a graph that is not running, as the forward one in a backward pass."""
        if graph not in self._homes:
            self._homes[graph] = Frame.of_graph(graph)
        return self._homes[graph]

    def of(self, frame: Frame, tensor: str) -> Any:
        """Return the value of a tensor of a frame, as a NumPy array.

        Raises:
            ValueUnavailableError: it is known only when the graph runs.
        """
        argument = frame.body.argument(tensor)
        if argument is not None:
            if frame.parent is None:
                return self.argument(argument)
            if frame.keeps(argument):
                return self.of(frame.parent, frame.caller_tensor(argument))
            raise self.unavailable(tensor)
        name, index = split(tensor)
        node: Any = frame.body.nodes.get(name)
        if node is None or tensor in frame.fed:
            raise self.unavailable(tensor)
        if node.op == "ReadVariableOp":
            return self.variable(frame, frame.inputs[name][0], node.attr["dtype"].type)
        operation = frame.operations[name]
        if node.op in _FROM_SHAPES:
            constant = tensor_util.constant_value(operation.outputs[index])
            if constant is not None:
                return constant
        if node.op in ("Identity", "Enter"):  # an identity may be one of a variable of version 1
            return self.of(frame, frame.inputs[name][0])
        if node.op in STRUCTURE or operation.op_def.is_stateful or not frame.inputs[name]:
            return self.other(frame, tensor)
        return self._computed(frame, name)[index]

    def _computed(self, frame: Frame, name: str) -> list[Any]:
        """Compute what an operator without state makes of known values."""
        node: Any = frame.body.nodes[name]
        values = [self.of(frame, tensor) for tensor in frame.inputs[name]]
        operation = frame.operations[name]
        attrs: list[Any] = []
        for attr in operation.op_def.attr:
            value = operation.get_attr(attr.name)
            attrs += [attr.name, value.as_datatype_enum if isinstance(value, tf.DType) else value]
        try:
            with context.eager_mode(), tf.device("CPU"):
                tensors = [tf.constant(value) for value in values]
                outputs = execute.execute(
                    node.op, len(operation.outputs), tensors, tuple(attrs), context.context()
                )
                return [output.numpy() for output in outputs]
        except (errors.OpError, AttributeError, TypeError, ValueError) as error:
            raise ValueUnavailableError(
                f"the value of {name} cannot be computed: {error}"
            ) from error

    def variable(self, frame: Frame, handle: str, dtype: int) -> Any:
        """Return the value of a variable, given its handle."""
        argument = frame.body.argument(handle)
        if argument is not None and frame.parent is None:
            return self.variable_argument(argument, dtype)
        if argument is not None and frame.parent is not None:
            if not frame.keeps(argument):
                raise self.unavailable(handle)
            return self.variable(frame.parent, frame.caller_tensor(argument), dtype)
        name, _ = split(handle)
        if name in frame.inputs and frame.body.nodes[name].op == "Identity":
            return self.variable(frame, frame.inputs[name][0], dtype)
        return self.other_variable(frame, handle, dtype)

    def argument(self, argument: int) -> Any:
        """Return the value of an argument of the outermost frame."""
        raise self.unavailable(f"argument {argument}")

    def variable_argument(self, argument: int, dtype: int) -> Any:
        """Return the value of a variable that is an argument of the outermost frame."""
        raise self.unavailable(f"argument {argument}")

    def other(self, frame: Frame, tensor: str) -> Any:
        """Return the value of any other tensor; one is known that a graph has captured."""
        outer = _captured(frame, tensor)
        if isinstance(outer, tf.__internal__.EagerTensor):
            if outer.dtype not in (tf.resource, tf.variant):
                return outer.numpy()
        elif outer is not None:
            return self.of(self.home(outer.graph), outer.name)
        raise self.unavailable(tensor)

    def other_variable(self, frame: Frame, handle: str, dtype: int) -> Any:
        """Return the value of any other variable."""
        outer = _captured(frame, handle)
        if isinstance(outer, tf.__internal__.EagerTensor):
            return _read(outer, dtype)
        if outer is not None:
            return self.variable(self.home(outer.graph), outer.name, dtype)
        raise self.unavailable(handle)

    @staticmethod
    def unavailable(tensor: str) -> ValueUnavailableError:
        """Make the error for a tensor whose value is not known yet."""
        return ValueUnavailableError(
            f"the value of {tensor} is known only when the graph runs; a host routine, which is "
            "inserted without pure=True, is given it"
        )


def _captured(frame: Frame, tensor: str) -> Any:
    """Return what a graph has captured as this tensor of its own; None for any other."""
    if frame.definition is not None:  # its arguments are those of a call, not captured
        return None
    return outer_of(frame.graph.get_tensor_by_name(tensor))


def _read(handle: Any, dtype: int) -> Any:
    with context.eager_mode():
        read = gen_resource_variable_ops.read_variable_op(handle, tf.as_dtype(dtype))
        return read.numpy()


class FunctionValues(Values):
    """This finds values for a function that is called: of its captures, not its arguments."""

    def __init__(self, args: Sequence[Any], function: Any) -> None:
        super().__init__()
        self._args = args
        self._first_capture = len(args) - len(function.function_type.flat_captures)

    def argument(self, argument: int) -> Any:
        """Return the value of a captured tensor."""
        value = self._args[argument]
        if argument < self._first_capture or value.dtype in (tf.resource, tf.variant):
            raise self.unavailable(f"argument {argument}")
        return value.numpy()

    def variable_argument(self, argument: int, dtype: int) -> Any:
        """Return the value of a captured variable, or of one that is passed."""
        return _read(self._args[argument], dtype)


class SessionValues(Values):
    """This finds values for what a session runs, and asks it for those of its variables."""

    def __init__(self, session: Any) -> None:
        super().__init__()
        self._session = session

    def other(self, frame: Frame, tensor: str) -> Any:
        """Return the value of a reference variable."""
        node = frame.body.nodes.get(split(tensor)[0])
        if frame.parent is None and node is not None and node.op in ("VariableV2", "Variable"):
            return self._run(tensor)
        raise self.unavailable(tensor)

    def other_variable(self, frame: Frame, handle: str, dtype: int) -> Any:
        """Return the value of a resource variable."""
        if frame.parent is None:
            for reader in frame.graph.get_tensor_by_name(handle).consumers():
                if reader.type == "ReadVariableOp":
                    return self._run(reader.outputs[0].name)
        raise self.unavailable(handle)

    def _run(self, tensor: str) -> Any:
        try:
            return self._session.run(tensor)
        except errors.FailedPreconditionError:
            raise ValueUnavailableError(f"{tensor} is not initialized yet") from None
