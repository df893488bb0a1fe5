"""The operator that a gradient belongs to is noted while gradients are built.

Names do not tell it. TensorFlow looks up the gradient function of an operator in a registry, both
for ``tf.gradients`` and for tapes; each call of such a function is noted, with the gradients that
come in and go out. A tape keeps nothing of an operator but its attributes, so that is noted too.
What else computes gradients, as the sums of them, is noted as the sections of a graph in which
they are computed.
"""

from __future__ import annotations

import collections
import functools
import threading
from typing import TYPE_CHECKING, Any

from amanda_tensorflow._internals import context, indexed_slices, ops, registry, tensor_lib
from amanda_tensorflow.graph.called_functions import calls_functions
from amanda_tensorflow.notes import GradientCall, last_id, made_since, name_of, notes_of
from amanda_tensorflow.notes.copying import copy_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class NotingRegistry(registry.Registry):  # type: ignore[misc]
    """This is the registry of gradient functions; one that is found there notes its calls.

    It stands for that one alone. The others are asked far more often, several times for each node.

    Args:
        gradient_functions: the registry, whose entries it shares.
    """

    def __init__(self, gradient_functions: Any) -> None:
        self._name = gradient_functions._name
        self._registry = gradient_functions._registry

    def lookup(self, name: Any) -> Any:
        """Find the gradient function of operators of a type."""
        found = super().lookup(name)
        if found is None or context.executing_eagerly():
            return found
        return functools.wraps(found)(functools.partial(_call_gradient_function, found))


def noting_custom_calls(record_operation: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``record_operation``: tapes call a custom gradient themselves, it is in no registry."""

    @functools.wraps(record_operation)
    def wrapped(
        op_type: Any,
        output_tensors: Any,
        input_tensors: Any,
        backward_function: Any,
        forward_function: Any = None,
    ) -> Any:
        first = None if context.executing_eagerly() else next(iter(output_tensors), None)
        if isinstance(first, tensor_lib.Tensor) and first.op.type == "IdentityN":

            def gradient(_: Any, *grad_outputs: Any) -> Any:
                return backward_function(*grad_outputs)

            noting = functools.partial(_call_gradient_function, gradient, first.op)
        else:
            noting = backward_function
        return record_operation(op_type, output_tensors, input_tensors, noting, forward_function)

    return wrapped


def noting_records(record_gradient: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``record_gradient`` to note which operator has the attributes that the tape keeps."""

    @functools.wraps(record_gradient)
    def wrapped(op_name: Any, inputs: Any, attrs: Any, results: Any) -> Any:
        if attrs and results and not context.executing_eagerly():
            operation = results[0].op
            recorded = notes_of(operation.graph).recorded
            recorded[id(attrs)] = attrs, operation.name  # kept, so that no other has its identity
        return record_gradient(op_name, inputs, attrs, results)

    return wrapped


def noting_sections(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``_GradientsHelper`` or ``imperative_grad``: all nodes made there compute gradients."""

    @functools.wraps(compute)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if context.executing_eagerly():
            return compute(*args, **kwargs)
        graph = ops.get_default_graph()
        first = last_id(graph)
        try:
            return compute(*args, **kwargs)
        finally:
            notes_of(graph).sections.append(made_since(graph, first))

    return wrapped


class _Jacobians(threading.local):
    """This counts the Jacobians that a thread is computing, one within the other."""

    depth = 0


_jacobians = _Jacobians()


def noting_jacobians(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``GradientTape.jacobian``: functions traced for it compute gradients, many at once."""

    @functools.wraps(compute)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        _jacobians.depth += 1
        try:
            return compute(*args, **kwargs)
        finally:
            _jacobians.depth -= 1

    return wrapped


def in_jacobian() -> bool:
    """Tell whether this thread is computing a Jacobian."""
    return bool(_jacobians.depth)


# One call of a gradient function


def _call_gradient_function(function: Callable[..., Any], op: Any, *grad_outputs: Any) -> Any:
    graph = ops.get_default_graph()
    first = last_id(graph)
    forward = op if isinstance(op, ops.Operation) else _recorded_operator(op, graph)
    if forward is None:
        return function(op, *grad_outputs)
    op, repeated = _inputs_told_apart(op)
    result = function(op, *grad_outputs)
    is_sequence = isinstance(result, (tuple, list))
    grad_inputs = _told_apart(list(result) if is_sequence else [result], grad_outputs, first)
    call = GradientCall(forward, grad_outputs, grad_inputs, made_since(graph, first))
    call.repeated = repeated
    if forward.graph is not graph:
        notes_of(forward.graph).gradients_in.add(graph)
    notes = notes_of(graph)
    notes.calls.append(call)
    for gradient in (*grad_outputs, *grad_inputs):
        if isinstance(gradient, indexed_slices.IndexedSlices):
            shape = name_of(gradient.dense_shape)
            notes.rows[gradient.values.name] = gradient.indices.name, shape
    return grad_inputs if is_sequence else grad_inputs[0]


def _recorded_operator(op: Any, graph: Any) -> Any:
    """Find the operation whose gradient a tape asks for."""
    while graph is not None:
        attrs, name = notes_of(graph).recorded.get(id(op.attrs), (None, ""))
        if attrs is op.attrs and attrs is not None:
            return graph.get_operation_by_name(name)
        graph = getattr(graph, "outer_graph", None)
    return None


def _inputs_told_apart(op: Any) -> tuple[Any, dict[str, int]]:
    """Return an operator with different tensors as inputs, as its gradient function is to see it.

    Returns:
        The operator, or one like it that takes copies of what it takes again; and the names of
        the copies, with how often each tensor was taken before.
    """
    inputs = list(op.inputs or ())
    given = [id(tensor) for tensor in inputs if tensor is not None]
    if len(set(given)) == len(given) or _works_on_operation(op.type):
        return op, {}
    repeated: dict[str, int] = {}
    seen: collections.Counter[int] = collections.Counter()
    for position, tensor in enumerate(inputs):
        if tensor is not None and seen[id(tensor)] and tensor.dtype.is_floating:
            inputs[position] = copy_of(tensor)
            repeated[inputs[position].op.name] = seen[id(tensor)]
        seen[id(tensor)] += 1
    return _WithInputs(op, inputs), repeated


def _works_on_operation(op: str) -> bool:
    """Tell whether a gradient function works on the operation itself, or reads no inputs.

    The one is so of calls of functions, the other of custom gradients.
    """
    return op == "IdentityN" or calls_functions(op)


class _WithInputs:
    """This is an operation with other inputs."""

    def __init__(self, op: Any, inputs: list[Any]) -> None:
        self._op = op
        self.inputs = inputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)


def _told_apart(grad_inputs: list[Any], grad_outputs: Sequence[Any], first: int) -> list[Any]:
    """Make a gradient that is passed on as it is, or returned twice, a tensor of its own.

    Without that nobody could tell the gradient of one input from that of another.
    """
    seen = {id(part) for gradient in grad_outputs for part in _parts(gradient)}

    def own(tensor: Any) -> Any:
        if id(tensor) in seen or tensor.op._id <= first:
            tensor = copy_of(tensor)
        seen.add(id(tensor))
        return tensor

    for index, gradient in enumerate(grad_inputs):
        if isinstance(gradient, tensor_lib.Tensor):
            grad_inputs[index] = own(gradient)
        elif isinstance(gradient, indexed_slices.IndexedSlices):
            values, indices = map(own, _parts(gradient))
            grad_inputs[index] = indexed_slices.IndexedSlices(values, indices, gradient.dense_shape)
    return grad_inputs


def _parts(gradient: Any) -> tuple[Any, ...]:
    """Return the tensors that routines may replace of a gradient."""
    if isinstance(gradient, indexed_slices.IndexedSlices):
        return gradient.values, gradient.indices
    return (gradient,)
