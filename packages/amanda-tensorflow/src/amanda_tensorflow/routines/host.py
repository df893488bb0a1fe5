"""Nodes of a graph call host routines back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from amanda_tensorflow._internals import context, script_ops
from amanda_tensorflow.routines import host_threads

if TYPE_CHECKING:
    from amanda_tensorflow.routines.stages import Stage


_EagerTensor = tf.__internal__.EagerTensor
_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


class HostRoutine(script_ops.EagerFunc):  # type: ignore[misc]
    """TensorFlow calls this back for a stage of host routines; which stage that is may change.

    Attributes:
        token: the name by which the node refers to it.
        stage: what it runs.
        failures: exceptions that it has raised, which TensorFlow turns into text.
    """

    def __init__(self, stage: Stage) -> None:
        # The base class gives its type alone, by which TensorFlow passes eager tensors: its
        # constructor would keep a method of this object in it, a cycle, and calls be half as fast.
        self.token: str = script_ops._py_funcs.insert(self)
        self.stage = stage
        self.failures: list[BaseException] = []

    def __call__(self, device: str | None, token: Any, args: Any) -> list[Any]:
        """Run the routines, without the tape that TensorFlow would keep for a gradient.

        Args:
            device: where the results are to be; None for the CPU.
            token: the name.
            args: eager tensors.
        """
        before = host_threads.hold()
        try:
            if context.executing_eagerly():
                return self._run(device, args)
            with context.eager_mode():
                return self._run(device, args)
        except BaseException as failure:
            self.failures.append(failure)
            raise
        finally:
            host_threads.release(before)

    def _run(self, device: str | None, args: Any) -> list[Any]:
        results, place = self.stage.run(args), device or _CPU
        for index, spec in enumerate(self.stage.results.values()):
            result = results[index]
            if not isinstance(result, _EagerTensor):  # but a variable or array
                result = tf.convert_to_tensor(result, spec.dtype.base_dtype)
            if result.backing_device != place:
                with tf.device(device):
                    result = result._copy()
            results[index] = result
        return results
