"""Calling the code of tools: what it runs is none of the program's.

A scope that a routine opens is its own: its tools, and only they, are active there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def _nothing_to_restore() -> None:
    pass


class _Running(threading.local):
    """What makes active again, when a thread's routine ends, what was set aside for it.

    It is ``_nothing_to_restore`` in a routine that has opened no scope, and None in none.
    """

    restore: Callable[[], None] | None = None


_running = _Running()


def call(routine: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a routine of a tool."""
    outer, _running.restore = _running.restore, _nothing_to_restore
    try:
        return routine(*args, **kwargs)
    finally:
        restore, _running.restore = _running.restore, outer
        if restore is not None and restore is not _nothing_to_restore:
            restore()


def in_routine_first(set_aside: Callable[[], Callable[[], None]]) -> None:
    """Call ``set_aside`` if this thread is in a routine that has not called it yet.

    Args:
        set_aside: sets aside what is active; what it returns is called when the routine ends.
    """
    if in_routine():
        _running.restore = set_aside()


def in_routine() -> bool:
    """Whether this thread is running a routine that has not opened a scope of its own."""
    return _running.restore is _nothing_to_restore
