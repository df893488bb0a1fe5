"""Host routines: what nodes of a graph call back in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from amanda_tensorflow._internals import script_ops
from amanda_tensorflow.routines import host_threads

if TYPE_CHECKING:
    from amanda_tensorflow.routines.stages import Stage


class HostRoutine(script_ops.EagerFunc):  # type: ignore[misc]
    """What TensorFlow calls back for a host stage; which one that is may be changed.

    Attributes:
        token: the name by which the node refers to it.
        stage: what it runs.
        failures: exceptions that it has raised, which TensorFlow turns into text.
    """

    def __init__(self, stage: Stage) -> None:
        dtypes = [spec.dtype.base_dtype for spec in stage.results.values()]
        super().__init__(None, dtypes, False)
        del self._func  # it is a method, since as an attribute it would make a cycle
        self.token: str = script_ops._py_funcs.insert(self)
        self.stage: Stage | None = stage
        self.failures: list[BaseException] = []

    def __call__(self, device: Any, token: Any, args: Any) -> Any:
        """Run it, without the tape that TensorFlow would keep for a gradient."""
        before = host_threads.hold()
        try:
            return self._call(device, args)
        finally:
            host_threads.release(before)

    def _func(self, *given: Any) -> Any:
        assert self.stage is not None
        try:
            results = self.stage.run(given)
        except BaseException as failure:
            self.failures.append(failure)
            raise
        return [r.read_value() if isinstance(r, tf.Variable) else r for r in results]
