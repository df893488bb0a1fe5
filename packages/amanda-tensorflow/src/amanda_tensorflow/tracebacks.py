"""Tracebacks of errors that leave functions, which TensorFlow and Keras shorten.

To do so they raise an error again ``from None``, and a routine's error would lose the exception
that it comes from. What they do is exchanged when an error is raised: Keras may be imported late.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import TYPE_CHECKING, Any

from amanda import AmandaError

from amanda_tensorflow._internals import traceback_utils

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    _Shorten = Callable[[TracebackType | None], TracebackType | None]


def patches() -> list[tuple[Any, str, Any, Any]]:
    """What to exchange in TensorFlow, and in Keras if it is imported."""
    name = "_process_traceback_frames"
    keras = sys.modules.get("keras.src.utils.traceback_utils")
    return [
        (module, name, shorten, _keeping_causes(shorten))
        for module in (traceback_utils, keras)
        if (shorten := getattr(module, name, None)) is not None
        and not hasattr(shorten, "__wrapped__")
    ]


def mark(error: Exception) -> None:
    """Have Keras leave an error as it is, where it would raise one like it with a longer text."""
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
    """A traceback without the frames of the driver, unless there are no others."""
    frames = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    package = __name__.partition(".")[0]
    others = [
        frame
        for frame in frames
        if frame.tb_frame.f_globals.get("__name__", "").partition(".")[0] != package
    ]
    rest = None
    for frame in reversed(others or frames):
        rest = types.TracebackType(rest, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return rest
