"""A log is a file that grows while a model runs and can be read at any moment."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from amanda_tools.interrupts import uninterrupted
from amanda_tools.kept import Kept

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

_BATCH = 1000

_Entry = TypeVar("_Entry")


class Log(Kept, Generic[_Entry]):
    """A log is a file written in batches of entries; what is in it is complete after each one.

    Entries are formatted when a batch is written: all at once costs half of one by one, between
    operators that fill the caches.

    When the file can no longer be written, what is in it stays complete, and what follows is
    dropped.

    Args:
        path: the file, overwritten if it exists, by :meth:`open` or the first entry.
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
        super().__init__(path)
        self._header = header.encode()
        self._separator = separator.encode()
        self._footer = footer.encode()
        self.written = 0
        self._format = format
        self._pending: deque[_Entry] = deque()
        self._lock = threading.Lock()
        self._end: int | None = None  # where the footer is; None before it is opened

    @property
    def added(self) -> int:
        """Return how many entries it has, also those that wait to be written with others."""
        with self._lock:
            return self.written + (len(self._pending) if self._writable else 0)

    def open(self) -> None:
        """Make the file, with no entries, unless that is done.

        Raises:
            OSError: it cannot be written, or another process is writing it.
        """
        if self._end is None:
            self._output.open()
            self._output.write(self._header + self._footer, 0)
            self._end = len(self._header)

    def write(self, *entries: _Entry) -> None:
        """Add some entries."""
        self._pending += entries
        if len(self._pending) >= _BATCH or (self._end is None and self._writable):
            self.flush()

    def flush(self) -> None:
        """Bring the file up to date."""
        with self._lock, uninterrupted():
            # Other threads may add some meanwhile.
            entries = [self._pending.popleft() for _ in range(len(self._pending))]
            if not self._writable:
                return
            try:
                self.open()
                self._append([self._format(entry).encode() for entry in entries])
            except OSError as error:
                self._give_up(error, "recording stopped")

    def _append(self, entries: list[bytes]) -> None:
        assert self._end is not None
        if not entries:
            return
        if self._output.size() != self._end + len(self._footer):
            raise OSError(errno.EBUSY, "another program changed it", str(self.path))
        between = self._separator if self.written else b""
        data = between + self._separator.join(entries)
        try:
            self._output.write(data + self._footer, self._end)
        except OSError:
            with contextlib.suppress(OSError):
                self._complete(entries)
            raise
        self._end += len(data)
        self.written += len(entries)

    def _complete(self, entries: list[bytes]) -> None:
        """End the file behind the last of the entries that were written as a whole.

        The footer goes where there was something already: there may be no room for more.
        """
        assert self._end is not None
        size = self._output.size()
        for entry in entries:
            end = self._end + len(self._separator if self.written else b"") + len(entry)
            if end + len(self._footer) > size:
                break
            self._end = end
            self.written += 1
        self._output.write(self._footer, self._end)
        self._output.end(self._end + len(self._footer))
