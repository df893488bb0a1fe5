"""The driver of what is staged: what there is beside the driver of what runs at once.

Tools decide, and plans are carried out, while a function is staged. What they insert becomes part
of the graph, pure routines as what they compute, others as steps that call them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from amanda import ValueUnavailableError
from amanda.driving import StagedCall

from numpy_backend import framework
from numpy_backend.driver import KernelCall, NumpyDriver
from numpy_backend.framework import Array, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda.driving import Engine


class StagedKernelCall(KernelCall, StagedCall):
    """A call of a kernel, maybe in a function that is being staged."""

    def is_staged(self, tensors: Sequence[Tensor]) -> bool:
        return framework.thread.graph is not None

    def call_back(
        self, call: Callable[..., Sequence[Tensor]], given: Sequence[Tensor], like: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        results = [Tensor(np.zeros_like(tensor.array)) for tensor in like]

        def compute(*arrays: Array) -> Sequence[Array]:
            with self.active.paused():
                return [result.array for result in call(*map(Tensor, arrays))]

        framework.thread.graph.add(compute, given, results)
        return results


class StagingDriver(NumpyDriver):
    """Has the framework obey the tools in functions that are staged, and in those that are not."""

    call = StagedKernelCall

    def _changed(self, engine: Engine | None) -> None:
        super()._changed(engine)
        framework.thread.key = lambda: engine and engine.stamp

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
