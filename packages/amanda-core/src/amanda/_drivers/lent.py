"""A driver may lend to tools its framework's own profiler, and what compares compiled code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from amanda._operators.operator import Operator

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


class Held(NamedTuple):
    """This tells how one run of compiled code compares with its operators, run one by one.

    Attributes:
        operator: the first operator whose result differs; the last one of all if none does.
        operators: how many there are.
        differs: whether one does.
        direction: ``forward``, or ``backward`` where what differs are gradients.
        dtype: of the tensors that were compared last.
        expected: such a tensor as its operators give it one by one, as a NumPy array.
        found: the same as the compiled code gives it.
    """

    operator: Operator
    operators: int
    differs: bool
    direction: str
    dtype: str
    expected: Any
    found: Any


Alike = Callable[[Any, Any, str], bool]
"""Whether an array is the one that is expected, given that, itself, and its type of data."""
