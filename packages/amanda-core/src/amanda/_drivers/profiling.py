"""What a framework's own profiler records is told here by the operators that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from amanda._contexts.context import OpContext


class Kernel(NamedTuple):
    """A kernel is a piece of work that an operator had a device do.

    Attributes:
        key: the operator, as :meth:`Profiler.watch` was told to call it.
        name: what the profiler calls it.
        device: where it ran: ``cpu``, or an accelerator as the profiler names it.
        duration: nanoseconds; on the host without what ran inside of it.
    """

    key: str
    name: str
    device: str
    duration: int


class Profiler(Protocol):
    """A profiler is the framework's own, lent to a tool for one recording."""

    def start(self) -> None:
        """Record from now on.

        Raises:
            UnsupportedError: the program uses that profiler itself.
        """

    def watch(self, ctx: OpContext, key: str) -> None:
        """Have the operator under analysis recorded by this key, on its forward or backward side.

        What that takes is inserted on behalf of the tool whose analysis it is.
        """

    def stop(self) -> Sequence[Kernel]:
        """Stop recording, and return what was recorded of the operators that are watched."""
