"""Functions that XLA compiles are compared with what they compute without it.

Fused operators have no results of their own. So a function is compiled again as far as some
operator, and has for its results what later operators read and what is written to variables; the
first operator with which these differ is looked for by halving.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf
from amanda import UnsupportedError
from amanda.driving import Held, numbered

from amanda_tensorflow._internals import (
    attributes,
    context,
    function_pb2,
    handle_data_util,
    script_ops,
)
from amanda_tensorflow.graph.body import Body, control_inputs, data_inputs, set_inputs, split
from amanda_tensorflow.graph.called_functions import FUNCTION_CALLS, definition_of
from amanda_tensorflow.graph.frames import Frame
from amanda_tensorflow.graph.identity import place_of
from amanda_tensorflow.graph.operators import TensorFlowOperator, finder
from amanda_tensorflow.rewriting.compiled import under_xla
from amanda_tensorflow.rewriting.definitions import edited, register
from amanda_tensorflow.running.functions import run_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from amanda.driving import Alike

_serials = itertools.count()


class HeldFunctions:
    """This compares each function that XLA compiles with its operators at the first call of it.

    Args:
        alike: whether a tensor is the one that is expected.
        tell: is told of each function.

    Raises:
        UnsupportedError: XLA compiles parts of graphs that it chooses by itself.
    """

    def __init__(self, alike: Alike, tell: Callable[[Held], None]) -> None:
        if tf.config.optimizer.get_jit():
            raise UnsupportedError(
                "tf.config.optimizer.set_jit() has XLA compile what it chooses of graphs, which "
                "cannot be held to its operators; leave it, and use tf.function(jit_compile=True)"
            )
        self._alike, self._tell = alike, tell
        self._met: weakref.WeakSet[Any] = weakref.WeakSet()

    def calling(self, call_flat: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``AtomicFunction.call_flat`` to compare what it compiles when that has run."""

        @functools.wraps(call_flat)
        def wrapped(function: Any, *args: Any) -> Any:
            if not function._bound_context.executing_eagerly() or function in self._met:
                return call_flat(function, *args)
            self._met.add(function)
            root = Frame.of_function(function)
            compiled = list(_compiled(root))
            calls: list[_Call] = []
            if compiled == [root]:
                calls.append(_Call.of(root, args))
                results = call_flat(function, *args)
            elif compiled:
                results = run_copy(_Noting(root, compiled, calls), function, args)
            else:
                return call_flat(function, *args)
            for call in calls:
                self._tell(_Code(call, self._alike).held())
            return results

        return wrapped

    def running(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``BaseSession._call_tf_sessionrun`` to refuse what XLA compiles there."""

        @functools.wraps(run)
        def refusing(session: Any, *args: Any) -> Any:
            graph = session.graph
            if graph not in self._met:
                self._met.add(graph)
                for operation in graph.get_operations():
                    if _is_compiled(graph, operation.node_def):
                        raise UnsupportedError(
                            f"{operation.name!r} is compiled by XLA in a session, where it cannot "
                            "be held to its operators; call it as a tf.function"
                        )
            return run(session, *args)

        return refusing


class _Call(NamedTuple):
    """A call of a compiled function has its arguments, and what the variables among them held."""

    frame: Frame
    args: Sequence[Any]
    variables: Sequence[tuple[Any, Any]]

    @classmethod
    def of(cls, frame: Frame, args: Sequence[Any]) -> _Call:
        return cls(frame, args, _variables(frame, args))


class _Noting:
    """This is a copy of a function that notes how it calls those that XLA compiles.

    Args:
        root: the frame of the function, which is edited.
        compiled: the frames of those that it calls.
        calls: where it notes the first call of each.
    """

    def __init__(self, root: Frame, compiled: Sequence[Frame], calls: list[_Call]) -> None:
        self._called: list[_Callback] = []  # kept alive
        for frame in compiled:
            assert frame.parent is not None
            body, call = frame.parent.body, frame.parent.body.nodes[frame.call]
            inputs = data_inputs(call)
            callback = _Callback(frame, calls)
            self._called.append(callback)
            node = body.add(body.unused("amanda/noting"), "EagerPyFunc", inputs)
            node.attr["token"].s = callback.token.encode()
            node.attr["is_async"].b = False
            node.attr["Tin"].list.type.extend(body.dtype(tensor) for tensor in inputs)
            node.attr["Tout"].list.SetInParent()
            set_inputs(call, inputs, [*control_inputs(call), node.name])
            frame.parent.mark_host()
        self._count = len(root.body.outputs)
        self._name = register(edited(root, next(_serials), "holding"), self).encode()

    def __call__(self, args: Sequence[Any], count: int) -> list[Any]:
        results = context.context().call_function(self._name, [*args], self._count)
        return list(results) if self._count else []


class _Callback(script_ops.EagerFunc):  # type: ignore[misc]
    """TensorFlow calls this back ahead of a function that XLA compiles."""

    def __init__(self, frame: Frame, calls: list[_Call]) -> None:
        self.token: str = script_ops._py_funcs.insert(self)
        self._frame, self._calls = frame, calls

    def __call__(self, device: str | None, token: Any, args: Any) -> list[Any]:
        if all(call.frame is not self._frame for call in self._calls):
            with context.eager_mode():
                self._calls.append(_Call.of(self._frame, list(args)))
        return []


class _Code:
    """This is the code of a function that XLA compiles, as it was called."""

    def __init__(self, call: _Call, alike: Alike) -> None:
        self._call, self._frame, self._alike = call, call.frame, alike
        self._body: Body = call.frame.body
        self._nodes = [name for name in self._body.nodes if name in call.frame.running]

    def held(self) -> Held:
        """Run the function both ways as it was called, and find the first operator that differs."""
        now = _variables(self._frame, self._call.args)
        try:
            least, most = 0, len(self._nodes) - 1
            last = self._difference(most)
            while last[0] and least < most:
                middle = (least + most) // 2
                found = self._difference(middle)
                if found[0]:
                    last, most = found, middle
                else:
                    least = middle + 1
        finally:
            _assign(now)
        differs, dtype, expected, found_value = last
        operator = self._operator(most)
        return Held(operator, len(self._nodes), differs, "forward", dtype, expected, found_value)

    def _difference(self, index: int) -> tuple[bool, str, Any, Any]:
        """Find the first difference with and without XLA, as far as an operator."""
        outputs = self._live(index)
        pairs = zip(self._run(outputs, False), self._run(outputs, True), strict=True)
        differs, dtype, expected, found = False, "", None, None
        for one, other in pairs:
            dtype, expected, found = one.dtype.name, one.numpy(), other.numpy()
            differs = not self._alike(expected, found, dtype)
            if differs:
                break
        return differs, dtype, expected, found

    def _live(self, index: int) -> list[str]:
        """List an operator's results, and what earlier ones made for later ones or variables."""
        body = self._body
        made, later = set(self._nodes[: index + 1]), self._nodes[index + 1 :]
        writing = [name for name in self._nodes if body.is_stateful(name)]
        read = [tensor for name in (*later, *writing) for tensor in data_inputs(body.nodes[name])]
        last = self._nodes[index]
        own = [f"{last}:{i}" for i in range(len(body.dtypes(body.nodes[last])))]
        return [
            tensor
            for tensor in dict.fromkeys((*read, *body.outputs, *own))
            if split(tensor)[0] in made and _is_numeric(tf.as_dtype(body.dtype(tensor)))
        ]

    def _run(self, outputs: Sequence[str], compiled: bool) -> Sequence[Any]:
        """Compute some tensors of the function from what it was called with."""
        if not outputs:
            return []
        body = self._body
        needed = body.behind(split(tensor)[0] for tensor in outputs)
        part = body.part([name for name in self._nodes if name in needed], outputs)
        part.definition = function_pb2.FunctionDef()
        definition = part.to_function(f"amanda_held_{next(_serials)}")
        if compiled:
            definition.attr[attributes.XLA_COMPILE].b = True
        _assign(self._call.variables)
        try:
            name = register([definition], self).encode()
            results: list[Any] = context.context().call_function(
                name, list(self._call.args), len(outputs)
            )
        except tf.errors.OpError as error:
            raise UnsupportedError(
                f"{self._frame.graph.name} cannot be held to its operators: "
                f"{'with' if compiled else 'without'} XLA a part of it fails: {error.message}"
            ) from error
        return results

    def _operator(self, index: int) -> TensorFlowOperator:
        graph, around = self._frame.graph, self._frame.scope
        places = [
            place_of(graph, around, self._frame.operations[name].name, self._body.nodes[name].op)
            for name in self._nodes[: index + 1]
        ]
        scope, place = places[-1]
        operation = self._frame.operations[self._nodes[index]]
        return TensorFlowOperator(
            finder(graph, operation.name),
            id=numbered(place, places.count((scope, place))),
            type=operation.type,
            name=operation.name,
            scope=scope,
        )


def _compiled(frame: Frame) -> Iterator[Frame]:
    """List the outermost functions that XLA compiles."""
    marked = under_xla(frame.definition)
    if frame.parent is not None:
        marked = _is_compiled(frame.parent.graph, frame.parent.body.nodes[frame.call])
    if marked:
        yield frame
        return
    for name in frame.running & frame.children.keys():
        for child in frame.children[name]:
            yield from _compiled(child)


def _is_compiled(graph: Any, node: Any) -> bool:
    """Tell whether a node calls a function that XLA compiles."""
    return node.op in FUNCTION_CALLS and (
        under_xla(node) or under_xla(definition_of(graph, node.attr["f"].func.name))
    )


def _is_numeric(dtype: tf.DType) -> bool:
    return bool(dtype.is_floating or dtype.is_complex or dtype.is_integer or dtype.is_bool)


def _variables(frame: Frame, args: Sequence[Any]) -> list[tuple[Any, Any]]:
    """List the handles of variables among arguments, with what they hold."""
    found = []
    for placeholder, handle in zip(frame.graph.inputs, args, strict=False):
        known = placeholder.dtype == tf.resource and handle_data_util.get_handle_data(placeholder)
        if known and known.is_set and len(known.shape_and_type) == 1:
            dtype = tf.as_dtype(known.shape_and_type[0].dtype)
            with contextlib.suppress(tf.errors.OpError):  # it has no value yet, or is none
                value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
                found.append((handle, tf.identity(value.numpy())))
    return found


def _assign(variables: Sequence[tuple[Any, Any]]) -> None:
    for handle, value in variables:
        tf.raw_ops.AssignVariableOp(resource=handle, value=value)
