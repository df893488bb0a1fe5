"""The record of PyTorch's profiler has a range around each operator that is watched."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from amanda import UnsupportedError
from amanda.driving import Kernel
from torch.autograd.profiler import record_function

from amanda_torch._internals import is_profiled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amanda import OpContext

_RANGE = "amanda::"
_OURS = (_RANGE, "profiler::")
_DEEPEST = 256  # ranges inside each other; those of operators that failed make room at last


class _Thread(threading.local):
    def __init__(self) -> None:
        self.ranges: deque[Any] = deque(maxlen=_DEEPEST)


class TorchProfiler:
    """This profiler records with ``torch.profiler``, of CUDA devices by CUPTI."""

    def __init__(self) -> None:
        self._profile: Any = None
        self._thread = _Thread()

    def start(self) -> None:
        """Record from now on.

        Raises:
            UnsupportedError: the program uses the profiler itself.
        """
        if is_profiled():
            raise UnsupportedError(
                "the program uses torch.profiler itself, which can record for one only; take "
                "that out, or leave out the tool"
            )
        self._profile = torch.profiler.profile()
        self._profile.__enter__()

    def watch(self, ctx: OpContext, key: str) -> None:
        """Put a range around the operator under analysis, on its forward or backward side."""

        def begin() -> None:
            around = record_function(f"{_RANGE}{key}")
            around.__enter__()
            self._thread.ranges.append(around)

        def end() -> None:
            self._thread.ranges.pop().__exit__(None, None, None)

        if ctx.is_forward():
            ctx.insert_before_op(begin, inputs=[])
            ctx.insert_after_op(end, outputs=[])
        else:
            ctx.insert_before_backward_op(begin, grad_outputs=[])
            ctx.insert_after_backward_op(end, grad_inputs=[])

    def stop(self) -> list[Kernel]:
        """Stop recording, and return what ran within the ranges."""
        profile, self._profile = self._profile, None
        profile.__exit__(None, None, None)
        return [
            kernel
            for event in profile.events()
            if event.name.startswith(_RANGE)
            for kernel in _within(event, event.name.removeprefix(_RANGE))
        ]


def _within(event: Any, key: str) -> Iterator[Kernel]:
    """List what a range contains, but for what is in ranges inside of it."""
    for child in event.cpu_children:
        if child.name.startswith(_OURS):
            continue
        for kernel in child.kernels:
            yield Kernel(key, kernel.name, f"cuda:{kernel.device}", round(1000 * kernel.duration))
        yield Kernel(key, child.name, "cpu", round(1000 * child.self_cpu_time_total))
        yield from _within(child, key)
