"""Says so when functions run where tools do not see them, as those of tf.data pipelines do."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

from amanda_tensorflow._internals import dataset_ops, errors, iterator_ops, op_def_registry
from amanda_tensorflow.eager import OF_MODELS
from amanda_tensorflow.frames import calls_functions, definition_of
from amanda_tensorflow.history import attached
from amanda_tensorflow.identity import OPT_IN, STRUCTURE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amanda.driving import Engine

    from amanda_tensorflow.driver import TensorFlowDriver
    from amanda_tensorflow.frames import Frame


class Pipelines:
    """Notices functions that are not instrumented, and says so once in each scope."""

    def __init__(self, driver: TensorFlowDriver) -> None:
        self._driver = driver
        self._told: weakref.WeakSet[Engine] = weakref.WeakSet()

    def patches(self) -> list[tuple[Any, str, Any, Any]]:
        """What to exchange in TensorFlow: where eager programs begin to read a dataset."""
        dataset, iterator = dataset_ops.DatasetV2, iterator_ops.OwnedIterator
        create, reduce = iterator._create_iterator, dataset.reduce

        @functools.wraps(create)
        def creating(made: Any, dataset: Any) -> Any:
            engine = self._driver.engine()
            if engine is not None:
                self._read(dataset, engine)
            return create(made, dataset)

        @functools.wraps(reduce)
        def reducing(dataset: Any, *args: Any, **kwargs: Any) -> Any:
            engine = self._driver.engine()
            if engine is not None:
                self._read(dataset, engine)
            return reduce(dataset, *args, **kwargs)

        return [
            (iterator, "_create_iterator", create, creating),
            (dataset, "reduce", reduce, reducing),
        ]

    def called(self, graph: Any, engine: Engine) -> None:
        """An eager operator calls the function of a graph."""
        self._look(_types_in(graph), engine, "tf.data")

    def look_at(self, root: Frame, engine: Engine) -> None:
        """Look for functions that nodes of a graph call, and that are no frames of it."""
        if engine in self._told:
            return
        for frame in root.walk():
            for name in frame.running & frame.body.nodes.keys():
                node: Any = frame.body.nodes[name]
                if not calls_functions(node.op):
                    for function in _functions_of(node):
                        self._look(_types_of(frame.graph, function, set()), engine, node.op)

    def _read(self, dataset: Any, engine: Engine) -> None:
        """A program begins to read a dataset."""
        waiting = [dataset]
        while waiting and engine not in self._told:
            dataset = waiting.pop()
            waiting += dataset._inputs()
            for wrapper in dataset._functions():
                self.called(wrapper.function.graph, engine)

    def _look(self, types: frozenset[str], engine: Engine, where: str) -> None:
        if engine in self._told:
            return
        for type in sorted(types):
            wanted = type.startswith(OF_MODELS) if engine.wanted is None else engine.wants(type)
            if wanted and type not in STRUCTURE and type not in OPT_IN:
                self._told.add(engine)
                self._driver.eager.tell(
                    f"tools see nothing of {type} and other operators in functions that {where} "
                    "runs; loop over the dataset in Python, and call them in a tf.function there"
                )
                return


def _types_in(graph: Any) -> frozenset[str]:
    """The types of the operators of a function's graph, and of the functions that it calls."""

    def find() -> frozenset[str]:
        known: set[str] = set()
        types: set[str] = set()
        for operation in graph.get_operations():
            types.add(operation.type)
            if _function_attributes(operation.type):
                for name in _functions_of(operation.node_def):
                    types |= _types_of(graph, name, known)
        return frozenset(types)

    return attached(graph, "_amanda_types", find)


def _types_of(graph: Any, name: str, known: set[str]) -> frozenset[str]:
    """The types of the operators of a function that a graph calls, and of those that it calls."""
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
    for attribute in _function_attributes(node.op):
        value = node.attr[attribute]
        for function in (value.func, *value.list.func):
            if function.name:
                yield function.name


@functools.cache
def _function_attributes(op: str) -> tuple[str, ...]:
    op_def = op_def_registry.get(op)
    attributes: Any = () if op_def is None else op_def.attr
    return tuple(attr.name for attr in attributes if attr.type in ("func", "list(func)"))
