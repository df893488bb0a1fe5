"""The code of tools is called here: what it runs is none of the program's.

A scope that a routine opens is its own: its tools, and only they, are active there.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from amanda._tools.tool import Tool

Restore: TypeAlias = Callable[[], None]


@dataclass(slots=True, eq=False)
class _Running:
    """This tells which tool's routine a thread is running.

    Attributes:
        now: the tool whose routine that is, and what makes active again, when the routine ends,
            what was set aside for its first scope; None for either that there is not.
    """

    now: tuple[Tool | None, Restore | None] = (None, None)


class _Thread(threading.local):
    """Each thread notes what it is running."""

    def __init__(self) -> None:
        self.running = _Running()


_thread = _Thread()


def call(
    tool: Tool, routine: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Call a routine of a tool."""
    running = _thread.running
    outer = running.now
    running.now = tool, None
    try:
        return routine(*args, **kwargs)
    finally:
        _, restore = running.now
        running.now = outer
        if restore is not None:
            restore()


def in_routine_first(set_aside: Callable[[], Restore]) -> None:
    """Call ``set_aside`` if this thread is in a routine that has not called it yet.

    Args:
        set_aside: sets aside what is active; what it returns is called when the routine ends.
    """
    if in_routine():
        _thread.running.now = running_tool(), set_aside()


def running_tool() -> Tool | None:
    """Return the tool whose routine this thread is running; None in none."""
    return _thread.running.now[0]


def in_routine() -> bool:
    """Tell whether this thread is running a routine that has not opened a scope of its own."""
    tool, restore = _thread.running.now
    return tool is not None and restore is None


def runs_later(function: Callable[..., Any]) -> bool:
    """Tell whether to call a function runs nothing of it yet, as of generators and coroutines."""
    return (
        inspect.isgeneratorfunction(function)
        or inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
    )


def name_of(routine: Callable[..., Any]) -> str:
    """Return the name of a routine for error messages."""
    return getattr(routine, "__qualname__", None) or repr(routine)
