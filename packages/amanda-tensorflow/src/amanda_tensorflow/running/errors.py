"""Errors of routines reach the program with their causes, and all others as without tools.

TensorFlow turns the exception of a host routine into an error of its own, and names in others the
nodes and functions that were added. It shortens the tracebacks of errors, as Keras does: for that
they raise an error again ``from None``, and a routine's error would lose the exception that it
comes from.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import types
from typing import TYPE_CHECKING, Any

from amanda import AmandaError

from amanda_tensorflow._internals import errors, traceback_utils

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from amanda_tensorflow.routines.host import HostRoutine

    _Shorten = Callable[[TracebackType | None], TracebackType | None]

# What is added to the names of functions and of a session's nodes.
_ADDED_TO_NAMES = re.compile(r"__amanda_\d+_\d+|amanda_copy_\d+/")


@contextlib.contextmanager
def explained(hosts: Sequence[tuple[int, HostRoutine]]) -> Iterator[None]:
    """Raise the errors of routines in place of what TensorFlow makes of them.

    Args:
        hosts: the host routines that what runs may call, numbered.

    Raises:
        RoutineError: a routine failed.
    """
    try:
        yield
    except errors.OpError as error:
        failures = [failure for _, routine in hosts for failure in routine.failures]
        for _, routine in hosts:
            routine.failures.clear()
        if failures:
            raise failures[0] from failures[0].__cause__
        error._message = _ADDED_TO_NAMES.sub("", error.message)
        raise


def shortening() -> Iterator[tuple[Any, str, Any]]:
    """List what to patch where TensorFlow, and Keras if it is imported, shorten tracebacks."""
    name = "_process_traceback_frames"
    for module in (traceback_utils, sys.modules.get("keras.src.utils.traceback_utils")):
        shorten = getattr(module, name, None)
        if shorten is not None and not hasattr(shorten, "__wrapped__"):
            yield module, name, _keeping_causes(shorten)


def mark(error: Exception) -> None:
    """Have Keras leave an error as it is, where it would raise one like it with a longer text."""
    if isinstance(error, AmandaError):
        error._keras_call_info_injected = True  # type: ignore[attr-defined]


def _keeping_causes(shorten: _Shorten) -> _Shorten:
    @functools.wraps(shorten)
    def shortened(traceback: TracebackType | None) -> TracebackType | None:
        error = sys.exc_info()[1]
        if isinstance(error, AmandaError):
            # raised here, and not where its cause would be taken away
            raise error.with_traceback(shorten(traceback))
        return shorten(_without_ours(traceback))

    return shortened


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    """Make a traceback without what the driver called, unless there is nothing else."""
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    package = __name__.partition(".")[0]
    others = [
        entry
        for entry in entries
        if entry.tb_frame.f_globals.get("__name__", "").partition(".")[0] != package
    ]
    rest = None
    for entry in reversed(others or entries):
        rest = types.TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest
