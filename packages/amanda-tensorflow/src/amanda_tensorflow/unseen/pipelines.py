"""Functions that run where tools do not see them, as in tf.data pipelines, are noticed here."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from amanda_tensorflow._internals import errors, op_def_registry
from amanda_tensorflow.graph.called_functions import calls_functions, definition_of
from amanda_tensorflow.notes import notes_of
from amanda_tensorflow.thread import active

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from amanda.driving import Engine

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.unseen import Unseen


class Pipelines:
    """This notices functions that are not instrumented.

    Args:
        unseen: is told of them.
    """

    def __init__(self, unseen: Unseen) -> None:
        self._unseen = unseen

    def noticing_datasets_at(
        self, position: int
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Make a wrapper of what begins to read a dataset, which it is given at a position."""

        def noticing(read: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(read)
            def reading(*args: Any, **kwargs: Any) -> Any:
                engine = active.engine
                if engine is not None:
                    self._read(args[position], engine)
                return read(*args, **kwargs)

            return reading

        return noticing

    def noticing_reductions(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``TFE_Py_FastPathExecute``, where a loop over a dataset is one eager operator."""

        @functools.wraps(execute)
        def noticing(runtime: Any, operator: str, *args: Any) -> Any:
            if operator == "ReduceDataset" and (engine := active.engine) is not None:
                for graph in (getattr(argument, "graph", None) for argument in args):
                    if graph is not None:
                        self._called(graph, engine)
            return execute(runtime, operator, *args)

        return noticing

    def look_at(self, root: Frame, engine: Engine) -> None:
        """Look for functions that nodes of a graph call, and that are no frames of it."""
        if self._unseen.met_by(engine).told_of_functions:
            return
        for frame in root.walk():
            for name in frame.running & frame.body.nodes.keys():
                node: Any = frame.body.nodes[name]
                if not calls_functions(node.op):
                    for function in _functions_of(node):
                        self._look(_types_of(frame.graph, function, set()), engine, node.op)

    def _read(self, dataset: Any, engine: Engine) -> None:
        """Look at the functions of a dataset that a program begins to read."""
        waiting = [dataset]
        while waiting and not self._unseen.met_by(engine).told_of_functions:
            dataset = waiting.pop()
            waiting += dataset._inputs()
            for wrapper in dataset._functions():
                if not _takes_batches(wrapper._func):
                    self._called(wrapper.function.graph, engine)

    def _called(self, graph: Any, engine: Engine) -> None:
        self._look(types_in(graph), engine, "tf.data")

    def _look(self, types: Iterable[str], engine: Engine, where: str) -> None:
        of_data = where == "tf.data" or "Dataset" in where
        way_out = "loop over the dataset in Python, and " if of_data else ""
        reason = f"functions that {where} runs; {way_out}call them in a tf.function there"
        self._unseen.tell_of_functions(types, engine, reason)


def _takes_batches(function: Any) -> bool:
    """Tell whether a function is one by which Keras takes batches out of what it is given.

    These are local to functions of Keras, so that no program gives them to a dataset.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    return str(module).partition(".")[0] == "keras" and "<locals>" in name


def types_in(graph: Any) -> frozenset[str]:
    """Return the types of operators in a function's graph, and in the functions that it calls."""
    notes = notes_of(graph)
    if notes.types is None:
        known: set[str] = set()
        types: set[str] = set()
        for operation in graph.get_operations():
            types.add(operation.type)
            if _function_attributes(operation.type) != ():
                for name in _functions_of(operation.node_def):
                    types |= _types_of(graph, name, known)
        notes.types = frozenset(types)
    return notes.types


def _types_of(graph: Any, name: str, known: set[str]) -> frozenset[str]:
    """Return the types of operators in a function that a graph calls, and in those it calls."""
    types: set[str] = set()
    if name not in known:
        known.add(name)
        try:
            definition = definition_of(graph, name)
        except errors.NotFoundError:
            return frozenset()
        for node in definition.node_def:
            types.add(node.op)
            for called in _functions_of(node):
                types |= _types_of(graph, called, known)
    return frozenset(types)


def _functions_of(node: Any) -> Iterator[str]:
    attributes = _function_attributes(node.op)
    if attributes is None:
        yield node.op
    for attribute in attributes or ():
        value = node.attr[attribute]
        for function in (value.func, *value.list.func):
            if function.name:
                yield function.name


@functools.cache
def _function_attributes(op: str) -> tuple[str, ...] | None:
    """List what names the functions of nodes of a type; None where the type itself does."""
    op_def = op_def_registry.get(op)
    if op_def is None:
        return None
    return tuple(attr.name for attr in op_def.attr if attr.type in ("func", "list(func)"))
