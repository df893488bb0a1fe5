"""What TensorFlow forgets while it builds graphs, noted on the graphs as they are built.

Names do not tell which forward operator a gradient belongs to, which layer a name scope was
opened for, or which Python function was traced. So a few functions of TensorFlow are wrapped when
this package is imported, and stay so: they run while graphs are built, never when they run. The
notes are attributes of the graphs, so that they live exactly as long.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import functools
import itertools
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from amanda_tensorflow._internals import (
    array_ops,
    backprop,
    context,
    execute,
    func_graph,
    gradients_util,
    imperative_grad,
    indexed_slices,
    ops,
    record,
    registry,
    tensor_lib,
    tf_decorator,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_Attached = TypeVar("_Attached")

_graphs = itertools.count()

# Operators whose gradient functions work on the operation itself, as that calls functions, or do
# not read its inputs, as custom gradients.
_TAKEN_AS_THEY_ARE = frozenset(
    [
        "IdentityN",
        "PartitionedCall",
        "StatefulPartitionedCall",
        "If",
        "StatelessIf",
        "Case",
        "StatelessCase",
        "While",
        "StatelessWhile",
    ]
)


class GradientCall:
    """One call of a registered gradient function: the gradient of one operator.

    Attributes:
        forward_graph: weak reference to the graph that the forward operator is in.
        forward: name of the forward operator.
        grad_outputs: names of the gradients that came in, aligned with the operator's outputs.
        grad_inputs: names of the gradients it returned, aligned with its inputs.
        first, last: ids of the nodes made for it are above the one and up to the other.
        repeated: names of nodes through which it reads an input that is the same tensor as an
            earlier one, with how many of those there are.
    """

    __slots__ = (
        "first",
        "forward",
        "forward_graph",
        "grad_inputs",
        "grad_outputs",
        "last",
        "repeated",
    )

    def __init__(
        self,
        forward: Any,
        grad_outputs: Sequence[Any],
        grad_inputs: Sequence[Any],
        first: int = 0,
        last: int = 0,
    ) -> None:
        self.forward_graph = weakref.ref(forward.graph)
        self.forward: str = forward.name
        self.grad_outputs = [_name(gradient) for gradient in grad_outputs]
        self.grad_inputs = [_name(gradient) for gradient in grad_inputs]
        self.first = first
        self.last = last
        self.repeated: dict[str, int] = {}


class Notes:
    """What is known of one graph.

    Attributes:
        calls: the gradient functions that made nodes in it, inner calls before outer ones.
        sections: ranges of node ids, exclusive and inclusive, made by computing gradients.
        copies: those that were put there by this driver.
        recorded: the operators that a tape has seen, by the identity of their attributes, which
            is all that a tape keeps of each of them.
        recomputed: ids of the nodes among these that are forward code all the same.
        custom: for the operator that a custom gradient is the gradient of, the range of ids of
            the forward nodes whose gradient it stands for.
        scopes: for a name scope, the scope around it and the name it was opened by.
        rows: for a gradient of which there are some rows (``IndexedSlices``), by the name of these,
            the names of their indices and of the shape of the whole, if that was told.
        updates: the name scopes that an optimizer opened.
        number: one that no other graph ever has.
        function: a number for the Python function it was traced from, if it was.
        functions: graphs of functions that it calls and of which only definitions are known.
        warned: whether it was said that some of its operators cannot be told apart.
    """

    __slots__ = (
        "calls",
        "copies",
        "custom",
        "function",
        "functions",
        "number",
        "recomputed",
        "recorded",
        "rows",
        "scopes",
        "sections",
        "updates",
        "warned",
    )

    def __init__(self) -> None:
        self.number = next(_graphs)
        self.calls: list[GradientCall] = []
        self.sections: list[tuple[int, int]] = []
        self.copies: list[tuple[int, int]] = []
        self.recomputed: set[int] = set()
        self.custom: dict[str, tuple[int, int]] = {}
        self.recorded: dict[int, tuple[Any, str]] = {}
        self.rows: dict[str, tuple[str, str | None]] = {}
        self.scopes: dict[str, tuple[str, str]] = {}
        self.updates: set[str] = set()
        self.function: int | None = None
        self.functions: dict[str, Any] = {}
        self.warned = False

    def computes_gradients(self) -> Callable[[int], bool]:
        """Tells by its id whether a node computes gradients, or was put there by this driver."""
        ranges = self.sections + self.copies + [(call.first, call.last) for call in self.calls]
        starts: list[int] = []
        ends: list[int] = []
        for first, last in sorted(ranges):
            if ends and first <= ends[-1]:
                ends[-1] = max(ends[-1], last)
            else:
                starts.append(first)
                ends.append(last)

        def check(id: int) -> bool:
            place = bisect.bisect_left(starts, id) - 1
            return place >= 0 and id <= ends[place] and id not in self.recomputed

        return check


def notes_of(graph: Any) -> Notes:
    """The notes on a graph."""
    return attached(graph, "_amanda_notes", Notes)


_attaching = threading.RLock()


def attached(owner: Any, name: str, make: Callable[[], _Attached]) -> _Attached:
    """What a graph or function carries under a name; whoever asks first has it made.

    Args:
        owner: the graph or function, as long as which it lives.
        name: the attribute.
        make: makes it; threads that ask at once get the same one.
    """
    try:
        found: _Attached = getattr(owner, name)
    except AttributeError:
        with _attaching:
            if not hasattr(owner, name):
                setattr(owner, name, make())
            found = getattr(owner, name)
    return found


def declared_scope(graph: Any, scope: str) -> str:
    """A name scope as the program wrote it, without the numbers that make it unique."""
    parts: list[str] = []
    while scope:
        outer, name = _opened(graph, scope) or (scope.rpartition("/")[0], scope.rpartition("/")[2])
        parts.append(name)
        scope = outer
    return "/".join(reversed(parts))


def _opened(graph: Any, scope: str) -> tuple[str, str] | None:
    """Where and by what name a scope was opened; a loop's body has the scopes around the loop."""
    while graph is not None:
        if (found := notes_of(graph).scopes.get(scope)) is not None:
            return found
        graph = getattr(graph, "outer_graph", None)
    return None


# Gradients


def _noting_gradients(lookup: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(lookup)
    def wrapped(self: Any, name: Any) -> Any:
        found = lookup(self, name)
        if self is not ops.gradient_registry or found is None or context.executing_eagerly():
            return found
        return functools.wraps(found)(functools.partial(_call_gradient_function, found))

    return wrapped


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
    call = GradientCall(forward, grad_outputs, grad_inputs, first, last_id(graph))
    call.repeated = repeated
    notes_of(graph).calls.append(call)
    for gradient in (*grad_outputs, *grad_inputs):
        if isinstance(gradient, indexed_slices.IndexedSlices):
            shape = _name(gradient.dense_shape)
            notes_of(graph).rows[gradient.values.name] = gradient.indices.name, shape
    return grad_inputs if is_sequence else grad_inputs[0]


def _inputs_told_apart(op: Any) -> tuple[Any, dict[str, int]]:
    """An operator whose inputs are different tensors, as its gradient function is to see it.

    Returns:
        The operator, or one like it that takes copies of what it takes again; and the names of
        the copies, with how often each tensor was taken before.
    """
    inputs = list(op.inputs or ())
    counts = collections.Counter(id(tensor) for tensor in inputs if tensor is not None)
    if not any(count > 1 for count in counts.values()) or op.type in _TAKEN_AS_THEY_ARE:
        return op, {}
    repeated: dict[str, int] = {}
    seen: collections.Counter[int] = collections.Counter()
    for position, tensor in enumerate(inputs):
        if tensor is not None and seen[id(tensor)] and tensor.dtype.is_floating:
            inputs[position] = array_ops.identity(tensor)
            repeated[inputs[position].op.name] = seen[id(tensor)]
        seen[id(tensor)] += 1
    return _WithInputs(op, inputs), repeated


class _WithInputs:
    """An operation with other inputs."""

    def __init__(self, op: Any, inputs: list[Any]) -> None:
        self._op = op
        self.inputs = inputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)


def _told_apart(grad_inputs: list[Any], grad_outputs: Sequence[Any], first: int) -> list[Any]:
    """A gradient that is passed on as it is, or returned twice, becomes a tensor of its own.

    Without that nobody could tell the gradient of one input from that of another.
    """
    seen = {id(part) for gradient in grad_outputs for part in _parts(gradient)}

    def own(tensor: Any) -> Any:
        if id(tensor) in seen or tensor.op._id <= first:
            tensor = array_ops.identity(tensor)
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
    """The tensors that routines may replace of a gradient."""
    if isinstance(gradient, indexed_slices.IndexedSlices):
        return gradient.values, gradient.indices
    return (gradient,)


def _noting_records(record_gradient: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(record_gradient)
    def wrapped(op_name: Any, inputs: Any, attrs: Any, results: Any) -> Any:
        if attrs and results and not context.executing_eagerly():
            operation = results[0].op
            recorded = notes_of(operation.graph).recorded
            recorded[id(attrs)] = attrs, operation.name  # kept, so that no other has its identity
        return record_gradient(op_name, inputs, attrs, results)

    return wrapped


def _noting_custom(record_operation: Callable[..., Any]) -> Callable[..., Any]:
    """Tapes call a custom gradient themselves, it is in no registry for them."""

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


def _recorded_operator(op: Any, graph: Any) -> Any:
    """The operation whose gradient a tape asks for."""
    while graph is not None:
        attrs, name = notes_of(graph).recorded.get(id(op.attrs), (None, ""))
        if attrs is op.attrs and attrs is not None:
            return graph.get_operation_by_name(name)
        graph = getattr(graph, "outer_graph", None)
    return None


def _noting_sections(compute: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compute)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if context.executing_eagerly():
            return compute(*args, **kwargs)
        graph = ops.get_default_graph()
        first = last_id(graph)
        try:
            return compute(*args, **kwargs)
        finally:
            notes_of(graph).sections.append((first, last_id(graph)))

    return wrapped


def last_id(graph: Any) -> int:
    """The id of the node that was made last."""
    return int(graph.version) + 1  # ids begin at 2


def _name(gradient: Any) -> str | None:
    if isinstance(gradient, indexed_slices.IndexedSlices):
        gradient = gradient.values
    return gradient.name if isinstance(gradient, tensor_lib.Tensor) else None


# Scopes and functions


# Where a name scope is opened on behalf of others, and where by optimizers.
_SCOPE_PLUMBING = (
    "contextlib",
    "amanda_tensorflow.",
    "tensorflow.python.framework.",
    "keras.src.backend.",
)
_OPTIMIZERS = ("keras.src.optimizers.", "tensorflow.python.training.")


def _noting_scopes(name_scope: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(name_scope)
    @contextlib.contextmanager
    def wrapped(self: Any, name: Any) -> Iterator[Any]:
        outer = self._name_stack
        with name_scope(self, name) as scope:
            if name and scope and not name.endswith("/"):
                notes = notes_of(self)
                notes.scopes.setdefault(scope.rstrip("/"), (outer or "", name))
                if _opened_by_optimizer():
                    notes.updates.add(scope.rstrip("/"))
            yield scope

    return wrapped


def _opened_by_optimizer() -> bool:
    """Whether a name scope that is being opened is one for an optimizer's updates."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(_SCOPE_PLUMBING):
            return bool(module.startswith(_OPTIMIZERS))
    return False


def is_update(graph: Any, scope: str) -> bool:
    """Whether a name scope is within one that an optimizer opened."""
    updates = notes_of(graph).updates
    while scope and updates:
        if scope in updates:
            return True
        scope = scope.rpartition("/")[0]
    return False


_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_next_number = itertools.count()


def _noting_functions(trace: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(trace)
    def wrapped(name: Any, python_func: Any, *args: Any, **kwargs: Any) -> Any:
        graph = trace(name, python_func, *args, **kwargs)
        function = tf_decorator.unwrap(python_func)[1]
        if _jacobians.depth:
            notes_of(graph).sections.append((0, last_id(graph)))
        with contextlib.suppress(TypeError):  # not every callable can be referred to weakly
            if function not in _numbers:
                _numbers[function] = next(_next_number)
            notes_of(graph).function = _numbers[function]
        return graph

    return wrapped


execute.record_gradient = _noting_records(execute.record_gradient)
record.record_operation = _noting_custom(record.record_operation)


class _Jacobians(threading.local):
    depth = 0


_jacobians = _Jacobians()


def _noting_jacobians(compute: Callable[..., Any]) -> Callable[..., Any]:
    """All functions that are traced for a Jacobian compute gradients, many at once."""

    @functools.wraps(compute)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        _jacobians.depth += 1
        try:
            return compute(*args, **kwargs)
        finally:
            _jacobians.depth -= 1

    return wrapped


registry.Registry.lookup = _noting_gradients(registry.Registry.lookup)
gradients_util._GradientsHelper = _noting_sections(gradients_util._GradientsHelper)
imperative_grad.imperative_grad = _noting_sections(imperative_grad.imperative_grad)
ops.Graph.name_scope = _noting_scopes(ops.Graph.name_scope)
backprop.GradientTape.jacobian = _noting_jacobians(backprop.GradientTape.jacobian)
backprop.GradientTape.batch_jacobian = _noting_jacobians(backprop.GradientTape.batch_jacobian)
func_graph.func_graph_from_py_func = _noting_functions(func_graph.func_graph_from_py_func)
