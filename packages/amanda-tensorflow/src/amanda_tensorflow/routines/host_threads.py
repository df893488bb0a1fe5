"""A host routine holds the thread of TensorFlow's that runs it.

There are only so many of them. A routine that opens a scope waits for what runs in it, which needs
such a thread too, and so does one that runs the layer which it replaces.
"""

from __future__ import annotations

import os
import threading

import tensorflow as tf
from amanda import UnsupportedError


class _Held(threading.local):
    """This tells whether TensorFlow has called a host routine in this thread, and waits for it."""

    held = False


_thread = _Held()
_lock = threading.Lock()
_waiting = 0  # how many threads are held by routines that wait for what needs another one


def hold() -> bool:
    """Begin a host routine in this thread; give the result to :func:`release` when it ends."""
    before, _thread.held = _thread.held, True
    return before


def release(before: bool) -> None:
    """End a host routine."""
    _thread.held = before


class Waiting:
    """This stands for a routine that has opened a scope or runs a layer, until the routine goes on.

    Args:
        what: what it waits for.

    Raises:
        UnsupportedError: it would wait forever for one of TensorFlow's threads.
    """

    def __init__(self, what: str = "a scope in a host routine") -> None:
        global _waiting
        self._held = _thread.held
        if self._held:
            with _lock:
                if _waiting + 1 >= _threads():
                    raise UnsupportedError(
                        f"{what} holds one of TensorFlow's {_threads()} threads that run "
                        "operators, and none would be left for those in it; call "
                        "tf.config.threading.set_inter_op_parallelism_threads(n) with a larger n "
                        "at the start of the program"
                    )
                _waiting += 1
        _thread.held = False

    def end(self) -> None:
        """Go on with the routine."""
        global _waiting
        _thread.held = self._held
        if self._held:
            with _lock:
                _waiting -= 1


def _threads() -> int:
    """Tell how many operators TensorFlow runs at a time."""
    chosen: int = tf.config.threading.get_inter_op_parallelism_threads()
    return chosen or len(getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0))
