"""Signals that end a program are held back, or made exceptions, so that what was found is kept."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

# What ends a program at once unless it is handled; Windows has no SIGHUP.
_FATAL = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Terminated(SystemExit):
    """This is raised when a signal asks the program to end.

    Attributes:
        signal: its number.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = number


def leave_with(stop: KeyboardInterrupt, found: object, said: str) -> None:
    """Have the exception of Ctrl-C keep what was found until then, and say how much that is.

    It stays the exception that it is, by which Python knows how to end.
    """
    stop.found = found  # type: ignore[attr-defined]
    stop.args = (f"{said}; kept in the attribute `found` of this exception",)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Have signals that end a program take effect only at the end of a ``with`` block.

    The block must be short.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
    met: list[tuple[int, FrameType | None]] = []
    try:
        for number in (signal.SIGINT, *_FATAL):
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, lambda *arguments: met.append(arguments))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if met:
            handlers[met[0][0]](*met[0])


@contextlib.contextmanager
def terminable() -> Iterator[list[int]]:
    """Have signals that would end the program at once raise :class:`Terminated` instead.

    So the program unwinds as for Ctrl-C. A signal that is ignored, or that somebody handles, is
    left alone, and a forked process ends at once, as it does without Amanda. The ``with`` block is
    given a list of the signals that came, since the program may catch the exception.
    """
    came: list[int] = []

    def unwind(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise Terminated(number)

    handled: list[int] = []
    if threading.current_thread() is threading.main_thread():
        handled = [number for number in _FATAL if signal.getsignal(number) == signal.SIG_DFL]
    for number in handled:
        signal.signal(number, unwind)
        _unwinding[number] = unwind
    try:
        yield came
    finally:
        for number in handled:
            _restore(number)


def end_by(number: int) -> None:
    """End this process by a signal, at once and without any handler."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


_unwinding: dict[int, Callable[[int, FrameType | None], Any]] = {}


def _restore(number: int) -> None:
    """Have a signal end the program at once again, unless somebody else handles it by now."""
    unwind = _unwinding.pop(number, None)
    if unwind is not None and signal.getsignal(number) is unwind:
        signal.signal(number, signal.SIG_DFL)


class _Fork(threading.local):
    """This is a fork in this thread: signals wait from before it until the child has restored them.

    One that came in between would be handled in the child, where Python forgets it.
    """

    def __init__(self) -> None:
        self.let_through: set[int] | None = None

    def begin(self) -> None:
        if _unwinding:
            self.let_through = signal.pthread_sigmask(signal.SIG_BLOCK, _unwinding)

    def end(self) -> None:
        if self.let_through is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.let_through)
            self.let_through = None

    def end_in_child(self) -> None:
        for number in list(_unwinding):
            _restore(number)
        self.end()


if hasattr(os, "register_at_fork"):
    _fork = _Fork()
    os.register_at_fork(
        before=_fork.begin, after_in_parent=_fork.end, after_in_child=_fork.end_in_child
    )
