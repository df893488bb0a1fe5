"""Calling the code of tools: what it runs is none of the program's.

A scope that a routine opens is its own: its tools, and only they, are active there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from amanda._tool import Tool


def _nothing_to_restore() -> None:
    pass


class _Running:
    """What a thread is running.

    Attributes:
        restore: makes active again, when the thread's routine ends, what was set aside for it. It
            is ``_nothing_to_restore`` in a routine that has opened no scope, and None in none.
        tool: whose routine it is; None in none.
    """

    __slots__ = ("restore", "tool")

    def __init__(self) -> None:
        self.restore: Callable[[], None] | None = None
        self.tool: Tool | None = None


class _Outer(NamedTuple):
    """What a thread was running before a routine."""

    restore: Callable[[], None] | None
    tool: Tool | None


class _Thread(threading.local):
    def __init__(self) -> None:
        self.running = _Running()


_thread = _Thread()


def begin(tool: Tool) -> _Outer:
    """Be in a routine of a tool; what this returns is given to :func:`end`."""
    running = _thread.running
    outer = _Outer(running.restore, running.tool)
    running.restore, running.tool = _nothing_to_restore, tool
    return outer


def end(outer: _Outer) -> None:
    """Be where this thread was before a routine, with what was set aside for it active again."""
    running = _thread.running
    restore = running.restore
    running.restore, running.tool = outer
    if restore is not None and restore is not _nothing_to_restore:
        restore()


def call(tool: Tool, routine: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a routine of a tool."""
    outer = begin(tool)
    try:
        return routine(*args, **kwargs)
    finally:
        end(outer)


def in_routine_first(set_aside: Callable[[], Callable[[], None]]) -> None:
    """Call ``set_aside`` if this thread is in a routine that has not called it yet.

    Args:
        set_aside: sets aside what is active; what it returns is called when the routine ends.
    """
    if in_routine():
        _thread.running.restore = set_aside()


def running_tool() -> Tool | None:
    """The tool whose routine this thread is running; None in none."""
    return _thread.running.tool


def in_routine() -> bool:
    """Whether this thread is running a routine that has not opened a scope of its own."""
    return _thread.running.restore is _nothing_to_restore
