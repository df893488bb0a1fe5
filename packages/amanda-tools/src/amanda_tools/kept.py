"""All files that tools keep are written by one process, and trouble with one stops no program."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from amanda_tools.notice import described, say
from amanda_tools.output import Output

if TYPE_CHECKING:
    from pathlib import Path


class Kept:
    """A kept file is written only by the process that made it: a forked worker leaves it alone.

    When it can no longer be written (a full disk), that is said once, and the program that is
    looked at goes on.

    Args:
        path: the file, overwritten if it exists.

    Attributes:
        trouble: why it is not written any more; None while all is well.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._output = Output(path)
        self._process = os.getpid()
        self.trouble: str | None = None

    @property
    def path(self) -> Path:
        """Return where the file is."""
        return self._output.path

    @property
    def state(self) -> str:
        """Tell where the file is, and why that is not all."""
        return str(self.path) + (f" (incomplete: {self.trouble})" if self.trouble else "")

    @property
    def _writable(self) -> bool:
        return self.trouble is None and os.getpid() == self._process

    def _give_up(self, error: OSError, consequence: str) -> None:
        """Write the file no more, and say why and what that means."""
        self.trouble = error.strerror or described(error)
        say(f"{self.path}: {self.trouble}; {consequence}, the program goes on")
