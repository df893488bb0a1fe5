"""Each thread carries the tools active in it, and what they are looking at."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from amanda.driving import ActiveEngine

from amanda_tensorflow.graph.frames import Frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amanda.driving import Engine

    from amanda_tensorflow.values import Values

active = ActiveEngine()


class Shown(NamedTuple):
    """This is what an analysis routine is looking at, and may ask for the values of.

    Attributes:
        values: what finds out the values of variables and constants.
        where: the frame whose tensors it sees, or the graph, where that does not run now.
    """

    values: Values
    where: Any

    @property
    def frame(self) -> Frame:
        """Return the frame whose tensors it sees, or that of a graph that does not run now."""
        return self.where if isinstance(self.where, Frame) else self.values.home(self.where)

    def value(self, tensor: Any) -> Any:
        """Return the value of a tensor as a NumPy array.

        Raises:
            ValueUnavailableError: it is known only when the graph runs.
        """
        frame = self.frame
        if tensor.graph is frame.graph:
            return self.values.of(frame, frame.tensor(tensor.name))
        raise self.values.unavailable(tensor.name)


class ThreadState:
    """This is what a thread is doing; within a scope that a routine opens, it begins anew.

    Attributes:
        engine: the tools that were made active, None for none.
        shown: what tools are looking at.
        holds: whether compiled code is compared with its operators.
    """

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.shown: Shown | None = None
        self.holds = False


class _Thread(threading.local):
    def __init__(self) -> None:
        self.state = ThreadState()


thread = _Thread()


@contextlib.contextmanager
def looking_at(shown: Shown) -> Iterator[None]:
    """Run analysis routines, which nobody sees, and which may ask for the values of tensors."""
    state = thread.state
    state.shown = shown
    try:
        with active.paused():
            yield
    finally:
        state.shown = None
