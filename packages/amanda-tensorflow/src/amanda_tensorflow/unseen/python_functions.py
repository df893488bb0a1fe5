"""Python functions of the program that a graph calls run in threads without tools; it is said."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any

from amanda_tensorflow.thread import active
from amanda_tensorflow.unseen.pipelines import types_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from amanda.driving import Engine

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.unseen import Unseen

_CALLING = frozenset(["EagerPyFunc", "PyFunc", "PyFuncStateless"])


class _Calling(threading.local):
    """This holds the tools of the graph that calls the Python function which a thread runs."""

    engine: Engine | None = None


class PythonFunctions:
    """This notices operators in what the program gives to ``tf.py_function`` and the like.

    Args:
        unseen: is told of them.
    """

    def __init__(self, unseen: Unseen) -> None:
        self._unseen = unseen
        self._engines: weakref.WeakValueDictionary[str, Engine] = weakref.WeakValueDictionary()
        self._calling = _Calling()

    def look_at(self, root: Frame, engine: Engine) -> None:
        """Take note of the Python functions that a graph and all that it calls may call."""
        for frame in root.walk():
            for name in frame.running & frame.body.nodes.keys():
                node: Any = frame.body.nodes[name]
                if node.op in _CALLING:
                    self._engines[node.attr["token"].s.decode()] = engine

    def noticing_calls(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``FuncRegistry.__call__``, by which TensorFlow calls Python functions back."""

        @functools.wraps(call)
        def noticing(registry: Any, token: str, device: Any, args: Any) -> Any:
            engine = self._engines.get(token)
            if engine is None or not engine.open or active.engine is not None:
                return call(registry, token, device, args)
            with self._called_for(engine):
                return call(registry, token, device, args)

        return noticing

    @contextlib.contextmanager
    def _called_for(self, engine: Engine) -> Iterator[None]:
        before, self._calling.engine = self._calling.engine, engine
        try:
            yield
        finally:
            self._calling.engine = before

    def noticing_operators(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``TFE_Py_FastPathExecute``, which runs an operator eagerly."""

        @functools.wraps(execute)
        def noticing(runtime: Any, operator: str, *args: Any) -> Any:
            if self._calling.engine is not None:
                self._notice((operator,), self._calling.engine)
            return execute(runtime, operator, *args)

        return noticing

    def noticing_functions(self, call_flat: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``AtomicFunction.call_flat``, by which a traced function is called."""

        @functools.wraps(call_flat)
        def noticing(function: Any, *args: Any) -> Any:
            if self._calling.engine is not None:
                self._notice(types_in(function.graph), self._calling.engine)
            return call_flat(function, *args)

        return noticing

    def _notice(self, types: Iterable[str], engine: Engine) -> None:
        self._unseen.tell_of_functions(
            types,
            engine,
            "Python functions that a graph calls (tf.py_function), in threads of TensorFlow's own; "
            "call them in the tf.function itself",
        )
