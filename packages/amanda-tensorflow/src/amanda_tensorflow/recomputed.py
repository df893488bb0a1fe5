"""Forward code that runs in the backward pass, noted while graphs are built.

A custom gradient is a function of the program's own, and what it runs may be forward code once
more, as all that ``tf.recompute_grad`` wraps. Such nodes are operators of the model, and what is
differentiated there are their gradients. Forward is what runs under a tape that the custom gradient
opens, once the tape watches what it is to watch, and what needs none of the gradients that come in.
What runs between opening the tape and that prepares it: ``tf.recompute_grad`` adds a zero to its
inputs there, so that they wait for the gradients.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from amanda_tensorflow._internals import (
    backprop,
    context,
    custom_gradient,
    ops,
    tensor_lib,
    tf_decorator,
)
from amanda_tensorflow.history import last_id, notes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class _CustomGradient:
    """A custom gradient that is being built.

    Attributes:
        first: ids of its nodes are above this.
        taped: ranges of ids, exclusive and inclusive, that ran under a tape it opened.
        prepared: those that ran under one before it watched what it is to watch.
        open: the tapes that it has opened, by identity, with the id after which they record.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.first = last_id(graph)
        self.taped: list[tuple[int, int]] = []
        self.prepared: list[tuple[int, int]] = []
        self.open: dict[int, int] = {}


class _Thread(threading.local):
    def __init__(self) -> None:
        self.building: list[_CustomGradient] = []


_thread = _Thread()


def _noting_custom_gradients(decorate: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(decorate)
    def wrapped(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        @functools.wraps(function)
        def noted(*inputs: Any, **options: Any) -> Any:
            result, gradient = function(*inputs, **options)
            return result, tf_decorator.make_decorator(gradient, _noting(gradient))

        return decorate(noted, args, kwargs)

    return wrapped


def _noting(gradient: Callable[..., Any]) -> Callable[..., Any]:
    """A custom gradient that notes which of its nodes are forward code."""

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
        notes_of(custom.graph).recomputed.update(_forward_ids(custom, grad_outputs))
        return grad_inputs

    return noting


def _forward_ids(custom: _CustomGradient, grad_outputs: Sequence[Any]) -> Iterable[int]:
    notes = notes_of(custom.graph)
    gradients = [section for section in notes.sections if section[0] >= custom.first]
    gradients += [(c.first, c.last) for c in notes.calls if c.first >= custom.first]
    carrying = {id(t) for t in grad_outputs if isinstance(t, tensor_lib.Tensor)}
    for operation in _made_after(custom.graph, custom.first):
        if not _within(operation._id, gradients):
            if _within(operation._id, custom.taped):
                yield operation._id
                continue
            prepares = _within(operation._id, custom.prepared)
            if not prepares and carrying.isdisjoint(map(id, operation.inputs)):
                yield operation._id
                continue
        carrying.update(map(id, operation.outputs))


def _made_after(graph: Any, first: int) -> list[Any]:
    made = []
    for operation in reversed(graph.get_operations()):
        if operation._id <= first:
            break
        made.append(operation)
    return made[::-1]


def _within(id: int, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(first < id <= last for first, last in ranges)


# Tapes


def _noting_start(begin: Callable[..., Any], opens: bool) -> Callable[..., Any]:
    """A tape starts to record, or watches more: what ran before is not what it is there for."""

    @functools.wraps(begin)
    def wrapped(tape: Any, *args: Any, **kwargs: Any) -> Any:
        result = begin(tape, *args, **kwargs)
        for custom in _thread.building[-1:]:
            now = last_id(custom.graph)
            if id(tape) in custom.open:
                custom.prepared.append((custom.open[id(tape)], now))
            if opens or id(tape) in custom.open:
                custom.open[id(tape)] = now
        return result

    return wrapped


def _noting_end(pop: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(pop)
    def wrapped(tape: Any, *args: Any, **kwargs: Any) -> Any:
        for custom in _thread.building[-1:]:
            if (start := custom.open.pop(id(tape), None)) is not None:
                custom.taped.append((start, last_id(custom.graph)))
        return pop(tape, *args, **kwargs)

    return wrapped


custom_gradient._graph_mode_decorator = _noting_custom_gradients(
    custom_gradient._graph_mode_decorator
)
backprop.GradientTape._push_tape = _noting_start(backprop.GradientTape._push_tape, opens=True)
backprop.GradientTape.watch = _noting_start(backprop.GradientTape.watch, opens=False)
backprop.GradientTape._pop_tape = _noting_end(backprop.GradientTape._pop_tape)
