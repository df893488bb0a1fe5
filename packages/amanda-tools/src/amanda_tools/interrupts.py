"""Ctrl-C at the wrong moment."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Have Ctrl-C take effect only at the end of a ``with`` block, which must be short."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    met: list[Any] = []
    signal.signal(signal.SIGINT, lambda *arguments: met.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if met:
            handler(*met[0])
