"""The engine that a thread runs under, which is part of the key of all that JAX traces there."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import TYPE_CHECKING

import jax

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amanda.driving import Engine


class _Thread(threading.local):
    """The engine in force, and whether the code of tools is at work, which nobody sees."""

    engine: Engine | None = None
    paused = False


thread = _Thread()
_context = jax.make_user_context(None)
_stamps: weakref.WeakKeyDictionary[Engine, object] = weakref.WeakKeyDictionary()


def engine_now() -> Engine | None:
    """The engine that is to be told of what runs in this thread; None if nobody is."""
    return None if thread.paused else thread.engine


def put_in_force(engine: Engine | None, paused: bool = False) -> None:
    """Have this thread run under an engine."""
    thread.engine, thread.paused = engine, paused
    engine = engine_now()
    stamp = None if engine is None else _stamps.setdefault(engine, object())
    _context(stamp).__enter__()  # and is never left: the next one takes its place


def refresh() -> None:
    """Take note of what another thread may have had forgotten."""
    put_in_force(thread.engine, thread.paused)


def forget(engine: Engine) -> None:
    """Have nothing used again that was traced under an engine."""
    _stamps[engine] = object()
    refresh()


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Have the code of tools, and what runs on their behalf, seen by nobody."""
    before = thread.paused
    put_in_force(thread.engine, True)
    try:
        yield
    finally:
        put_in_force(thread.engine, before)
