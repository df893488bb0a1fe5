"""The engine that a thread runs under."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from amanda._engine import Engine


class InForce(threading.local):
    """What a driver's threads run under, each its own; nobody sees what the code of tools runs.

    Attributes:
        engine: that of the current thread, which is to be told of what runs; None for nobody.

    Args:
        changed: called in a thread with its ``engine`` whenever that may be another one.
    """

    def __init__(self, changed: Callable[[Engine | None], Any] = lambda engine: None) -> None:
        self._changed = changed
        self._put_in_force: Engine | None = None
        self._paused = False
        self.engine: Engine | None = None

    def put(self, engine: Engine | None, paused: bool = False) -> None:
        """Put an engine in force, seen by nobody yet if the code of tools is at work."""
        self._put_in_force, self._paused = engine, paused
        self.refresh()

    def refresh(self) -> None:
        """Have ``changed`` called."""
        self.engine = None if self._paused else self._put_in_force
        self._changed(self.engine)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Run the code of tools, or something on their behalf."""
        before, self._paused = self._paused, True
        self.refresh()
        try:
            yield
        finally:
            self._paused = before
            self.refresh()
