"""Some files are written as a whole, so that whoever reads one never finds a part of it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from amanda_tools.interrupts import uninterrupted
from amanda_tools.kept import Kept

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable


class Document(Kept):
    """A document is a file that holds one text at a time, and nothing worth reading in between.

    Args:
        path: the file, overwritten if it exists, by :meth:`open` or the first text.
        nothing: what is in it while there is no text, or no room for one.

    Raises:
        OSError: it cannot be written there.
    """

    def __init__(self, path: str | os.PathLike[str], nothing: str | bytes = "") -> None:
        super().__init__(path)
        self._nothing = nothing.encode() if isinstance(nothing, str) else nothing
        self._opened = False

    def open(self) -> None:
        """Make the file, without a text, unless that is done.

        Raises:
            OSError: it cannot be written, or another process is writing it.
        """
        if not self._opened:
            self._output.open()
            self._output.write(self._nothing, 0)
            self._opened = True

    def write(self, text: str | bytes) -> None:
        """Have this text, or these bytes, in the file, in place of what is there."""
        self.write_parts([text.encode() if isinstance(text, str) else text])

    def write_parts(self, parts: Iterable[bytes]) -> None:
        """Have this in the file, part by part, in place of what is there."""
        if not self._writable:
            return
        with uninterrupted():
            try:
                self.open()
                self._output.size()  # an error if the file is gone
                self._replace(parts)
            except OSError as error:
                self._give_up(error, "it is not complete")

    def _replace(self, parts: Iterable[bytes]) -> None:
        try:
            end = 0
            for part in parts:
                self._output.write(part, end)
                end += len(part)
            self._output.end(end)
        except OSError:
            with contextlib.suppress(OSError):
                self._output.write(self._nothing, 0)  # where there was something before
                self._output.end(len(self._nothing))
            raise
