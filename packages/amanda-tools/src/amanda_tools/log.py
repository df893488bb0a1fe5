"""Files that grow while a model runs and can be read at any moment."""

from __future__ import annotations

import os
import threading
from pathlib import Path

_BATCH = 1000


class Log:
    """A file written in batches of entries; what is in it is complete after each one.

    Only the process that made it writes: a forked worker leaves the file alone.

    Args:
        path: the file, overwritten if it exists.
        header: what it begins with.
        separator: what stands between two entries.
        footer: what it ends with, wherever that is for now.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        header: str = "",
        separator: str = "",
        footer: str = "",
    ) -> None:
        self.path = Path(path).expanduser().absolute()
        self._separator = separator
        self._footer = footer.encode()
        self._pending: list[str] = []
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._between = ""
        with self.path.open("wb") as file:
            file.write(header.encode())
            self._end = file.tell()
            file.write(self._footer)

    def write(self, entry: str) -> None:
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
        with self._lock:
            if not self._pending or os.getpid() != self._process:
                return
            batch = self._between + self._separator.join(self._pending)
            self._pending.clear()
            self._between = self._separator
            with self.path.open("r+b") as file:
                file.seek(self._end)
                file.write(batch.encode())
                self._end = file.tell()
                file.write(self._footer)
