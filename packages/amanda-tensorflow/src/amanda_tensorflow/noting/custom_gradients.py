"""Forward code that runs in the backward pass is noted while graphs are built.

A custom gradient is a function of the program's own, and what it runs may be forward code once
more, as all that ``tf.recompute_grad`` wraps. Such nodes are operators of the model, and what is
differentiated there are their gradients. Forward is what runs under a tape that the custom gradient
opens, once the tape watches what it is to watch. What runs between opening the tape and that
prepares it: ``tf.recompute_grad`` adds a zero to its inputs there, so that they wait for the
gradients. All else serves the gradient alone, whether it needs the gradients that come in or not.

What the custom gradient stands for is noted too: those nodes have no gradient of their own, so what
tools do to them must not part them from it.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from amanda_tensorflow._internals import context, ops, tensor_lib, tf_decorator
from amanda_tensorflow.graph.called_functions import calls_functions, find_function, functions_of
from amanda_tensorflow.graph.gradients_by_name import is_gradient
from amanda_tensorflow.notes import last_id, made_since, notes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from amanda_tensorflow.notes import Range


class _CustomGradient:
    """This is a custom gradient that is being built.

    Attributes:
        first: ids of its nodes are above this.
        taped: ranges of ids, exclusive and inclusive, that ran under a tape it opened.
        open: the tapes that it has opened, by identity, with the id after which they record.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.first = last_id(graph)
        self.taped: list[tuple[int, int]] = []
        self.open: dict[int, int] = {}


class _Differentiated:
    """This is the forward code that a custom gradient is the gradient of.

    Attributes:
        nodes: ranges of ids of the forward nodes.
        operator: name of the operator that gives their results, once it is there.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = weakref.ref(graph)
        self.nodes: list[Range] = []
        self.operator = ""

    def note(self, result: Any) -> None:
        """Note the forward nodes on their graph, as their result is made."""
        graph = self.graph()
        for tensor in tf.nest.flatten(result, expand_composites=True):
            if isinstance(tensor, tensor_lib.Tensor) and tensor.graph is graph:
                self.operator = tensor.op.name
                notes_of(graph).custom[self.operator] = self.nodes
                return

    def forget(self) -> None:
        """Forget the nodes: the gradient runs them again, and then sees what tools do to them."""
        if (graph := self.graph()) is not None:
            notes_of(graph).custom.pop(self.operator, None)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.building: list[_CustomGradient] = []


_thread = _Thread()


def noting_custom_gradients(decorate: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``_graph_mode_decorator`` to note what a custom gradient is of, and runs again."""

    @functools.wraps(decorate)
    def wrapped(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        differentiated = _Differentiated(ops.get_default_graph())

        @functools.wraps(function)
        def noted(*inputs: Any, **options: Any) -> Any:
            graph = ops.get_default_graph()
            first = last_id(graph)
            result, gradient = function(*inputs, **options)
            differentiated.nodes = made_since(graph, first)
            noting = _noting(gradient, differentiated)
            return result, tf_decorator.make_decorator(gradient, noting)

        result = decorate(noted, args, kwargs)
        differentiated.note(result)
        return result

    return wrapped


def _noting(gradient: Callable[..., Any], differentiated: _Differentiated) -> Callable[..., Any]:
    """Wrap a custom gradient to note which of its nodes are forward code."""

    @functools.wraps(gradient)
    def noting(*grad_outputs: Any, **kwargs: Any) -> Any:
        if context.executing_eagerly():
            return gradient(*grad_outputs, **kwargs)
        custom = _CustomGradient(ops.get_default_graph())
        _thread.building.append(custom)
        try:
            grad_inputs = gradient(*grad_outputs, **kwargs)
        finally:
            _thread.building.remove(custom)
        if again := _forward_ids(custom):
            notes_of(custom.graph).recomputed.update(again)
            _note_called(custom.graph, again)
            differentiated.forget()
        return grad_inputs

    return noting


def _forward_ids(custom: _CustomGradient) -> set[int]:
    notes = notes_of(custom.graph)
    made = itertools.chain(*notes.sections, *(call.made for call in notes.calls))
    gradients = [each for each in made if each[0] >= custom.first]
    return {
        id
        for first, last in custom.taped
        for id in range(first + 1, last + 1)
        if not _within(id, gradients)
    }


def _note_called(graph: Any, ids: Container[int]) -> None:
    """Note that what some nodes call is forward code too, where names would tell the opposite."""
    for operation in graph.get_operations():
        if operation._id in ids and calls_functions(operation.type):
            for _, name in functions_of(operation.node_def):
                called = getattr(find_function(graph, name), "graph", None)
                if called is not None:
                    notes = notes_of(called)
                    computes_gradients = notes.computes_gradients()
                    again = {
                        o._id
                        for o in called.get_operations()
                        if is_gradient(o.name) and not computes_gradients(o._id)
                    }
                    notes.recomputed.update(again)
                    _note_called(called, again)


def _within(id: int, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(first < id <= last for first, last in ranges)


# Tapes


def noting_opened(push: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``GradientTape._push_tape`` to note that a tape starts to record."""
    return _noting_start(push, opens=True)


def noting_watched(watch: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``GradientTape.watch``: what ran before it is not what the tape is there for."""
    return _noting_start(watch, opens=False)


def _noting_start(begin: Callable[..., Any], opens: bool) -> Callable[..., Any]:
    @functools.wraps(begin)
    def wrapped(tape: Any, *args: Any, **kwargs: Any) -> Any:
        result = begin(tape, *args, **kwargs)
        for custom in _thread.building[-1:]:
            if opens or id(tape) in custom.open:
                custom.open[id(tape)] = last_id(custom.graph)
        return result

    return wrapped


def noting_closed(pop: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``GradientTape._pop_tape``: what the tape has recorded until then is forward code."""

    @functools.wraps(pop)
    def wrapped(tape: Any, *args: Any, **kwargs: Any) -> Any:
        for custom in _thread.building[-1:]:
            if (start := custom.open.pop(id(tape), None)) is not None:
                custom.taped += made_since(custom.graph, start)
        return pop(tape, *args, **kwargs)

    return wrapped
