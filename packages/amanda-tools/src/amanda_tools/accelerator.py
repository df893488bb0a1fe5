"""What an accelerator can tell about the work it was given."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


class Accelerator(Protocol):
    """A device that runs beside the host."""

    def synchronize(self) -> None:
        """Wait until it has done all it was given."""

    def allocated(self) -> int:
        """Bytes of its memory in use by tensors."""


class _Cuda:
    def __init__(self, device: Any) -> None:
        self._device = device
        self._cuda = sys.modules["torch"].cuda

    def synchronize(self) -> None:
        self._cuda.synchronize(self._device)

    def allocated(self) -> int:
        return int(self._cuda.memory_allocated(self._device))


def accelerator_of(tensors: Iterable[Any]) -> Accelerator | None:
    """The accelerator that some of the tensors are on; None for the host, or an unknown one."""
    for tensor in tensors:
        if getattr(tensor, "is_cuda", False):
            return _Cuda(tensor.device)
    return None
