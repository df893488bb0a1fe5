"""The driver of what is staged: what there is beside the driver of what runs at once.

Tools decide, and plans are carried out, while a function is staged. What they insert becomes part
of the graph, pure routines as what they compute, others as steps that call them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from amanda import UnsupportedError, ValueUnavailableError

from numpy_backend import framework
from numpy_backend.driver import KernelCall, NumpyDriver
from numpy_backend.framework import Array, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda import Operator
    from amanda.driving import Action, Engine

    from numpy_backend.framework import Grads


class StagedCall(KernelCall):
    """A call of a kernel, maybe in a function that is being staged."""

    def run_action(self, action: Action, given: Grads, like: Grads, operator: Operator) -> Grads:
        graph, run = framework.thread.graph, super().run_action
        if graph is None or action.pure:
            return run(action, given, like, operator)
        if action.differentiable:
            raise UnsupportedError(
                f"{action.tool.name}: a routine of {operator.id!r} cannot be differentiated in a "
                "staged function, since it runs on the host; insert it with pure=True if it is a "
                "function of tensors"
            )
        inputs = [tensor for tensor in (*given, *like) if tensor is not None]
        results = [t if t is None else Tensor(np.zeros_like(t.array)) for t in like]

        def call(*arrays: Array) -> Sequence[Array]:
            tensors = map(Tensor, arrays)
            now_given, now_like = (
                [None if placeholder is None else next(tensors) for placeholder in placeholders]
                for placeholders in (given, like)
            )
            with self.engine.driver.in_force.paused():
                found = run(action, now_given, now_like, operator)
            for substitute, placeholder in zip(found, like, strict=True):
                if placeholder is None and substitute is not None:
                    raise action.error("gave a gradient where none flows, when staged", operator)
            return [] if action.observes else [f.array for f in found if f is not None]

        if action.observes:  # so that nothing that is computed depends on it
            graph.add(call, inputs, [])
            return like
        graph.add(call, inputs, [tensor for tensor in results if tensor is not None])
        return results


class StagingDriver(NumpyDriver):
    """Has the framework obey the tools in functions that are staged, and in those that are not."""

    call = StagedCall

    def __init__(self) -> None:
        super().__init__()
        self._keys: WeakKeyDictionary[Engine, object] = WeakKeyDictionary()

    def _changed(self, engine: Engine | None) -> None:
        super()._changed(engine)
        framework.thread.key = functools.partial(self._key, engine)

    def _key(self, engine: Engine | None) -> object:
        """What is staged now is good for what one engine has decided and has not forgotten."""
        if engine is None:
            return None
        return self._keys.setdefault(engine, object()) if engine.caching else object()

    def forgotten(self, engine: Engine) -> None:
        self._keys.pop(engine, None)

    def value(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        graph = framework.thread.graph
        if graph is not None and tensor in graph:
            raise ValueUnavailableError(
                "this tensor has a value only when what is staged runs; take it in a routine"
            )
        return super().value(tensor)

    def suspend(self) -> Any:
        graph, framework.thread.graph = framework.thread.graph, None
        return graph, super().suspend()

    def resume(self, suspended: Any, engine: Engine | None) -> None:
        framework.thread.graph, around = suspended
        super().resume(around, engine)


driver = StagingDriver()
