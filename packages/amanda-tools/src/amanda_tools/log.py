"""Files that grow while a model runs and can be read at any moment."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from amanda_tools.interrupts import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable

_BATCH = 1000

_Entry = TypeVar("_Entry")


class Log(Generic[_Entry]):
    """A file written in batches of entries; what is in it is complete after each one.

    Entries are formatted when a batch is written: all at once costs half of one by one, between
    operators that fill the caches.

    Only the process that made it writes: a forked worker leaves the file alone.

    Args:
        path: the file, overwritten if it exists.
        format: how an entry is written.
        header: what it begins with.
        separator: what stands between two entries.
        footer: what it ends with, wherever that is for now.

    Attributes:
        written: how many entries are in the file.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: Callable[[_Entry], str],
        *,
        header: str = "",
        separator: str = "",
        footer: str = "",
    ) -> None:
        self.path = Path(path).expanduser().absolute()
        self._separator = separator
        self._footer = footer.encode()
        self.written = 0
        self._format = format
        self._pending: list[_Entry] = []
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._between = ""
        with self.path.open("wb") as file:
            file.write(header.encode())
            self._end = file.tell()
            file.write(self._footer)

    def write(self, entry: _Entry) -> None:
        """Add an entry."""
        if os.getpid() != self._process:
            return
        with self._lock:
            self._pending.append(entry)
            full = len(self._pending) >= _BATCH
        if full:
            self.flush()

    def flush(self) -> None:
        """Bring the file up to date."""
        with self._lock, uninterrupted():
            if not self._pending or os.getpid() != self._process:
                return
            batch = self._between + self._separator.join(map(self._format, self._pending))
            with self.path.open("r+b") as file:
                file.seek(self._end)
                file.write(batch.encode())
                self._end = file.tell()
                file.write(self._footer)
            self.written += len(self._pending)
            self._pending.clear()
            self._between = self._separator
