"""Files that are written as a whole, and whole whenever one looks."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from amanda_tools.interrupts import uninterrupted
from amanda_tools.notice import described, say
from amanda_tools.output import Output

if TYPE_CHECKING:
    from pathlib import Path


class Document:
    """A file that holds one text at a time, and nothing worth reading in between.

    Only the process that made it writes. When the file cannot be written (a full disk), that is
    said once, and the program that is looked at goes on.

    Args:
        path: the file, overwritten if it exists, by :meth:`open` or the first text.
        nothing: what is in it while there is no text, or no room for one.

    Attributes:
        trouble: why it is not written any more; None while all is well.

    Raises:
        OSError: it cannot be written there.
    """

    def __init__(self, path: str | os.PathLike[str], nothing: str = "") -> None:
        self._output = Output(path)
        self._nothing = nothing.encode()
        self._process = os.getpid()
        self._opened = False
        self.trouble: str | None = None

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._output.path

    @property
    def state(self) -> str:
        """Where it is, and why that is not all."""
        return str(self.path) + (f" (incomplete: {self.trouble})" if self.trouble else "")

    def open(self) -> None:
        """Make the file, without a text, unless that is done.

        Raises:
            OSError: it cannot be written, or another process is writing it.
        """
        if not self._opened:
            self._output.open()
            self._output.write(self._nothing, 0)
            self._opened = True

    def write(self, text: str) -> None:
        """Have this text in the file, in place of what is there."""
        if self.trouble is not None or os.getpid() != self._process:
            return
        with uninterrupted():
            try:
                self.open()
                self._output.size()  # an error if the file is gone
                self._replace(text.encode())
            except OSError as error:
                self.trouble = error.strerror or described(error)
                say(f"{self.path}: {self.trouble}; it is not complete, the program goes on")

    def _replace(self, data: bytes) -> None:
        try:
            self._output.write(data, 0)
            self._output.end(len(data))
        except OSError:
            with contextlib.suppress(OSError):
                self._output.write(self._nothing, 0)  # where there was something before
                self._output.end(len(self._nothing))
            raise
