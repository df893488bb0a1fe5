"""Captured tensors are written to files as they come, so that memory holds one at a time."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from amanda_tools.notice import described, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    Array: TypeAlias = np.ndarray[Any, Any]


class Part(NamedTuple):
    """A part is one tensor in a file.

    Attributes:
        name: the name of the tensor.
        dtype, shape: of the tensor.
        path: the file.
        offset: where in it the elements begin, in the order of C.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    path: Path
    offset: int

    @property
    def size(self) -> int:
        """Return how many bytes the elements take."""
        return math.prod(self.shape) * self.dtype.itemsize

    def array(self) -> Array:
        """Return the tensor, mapped into memory: elements are read from the file when asked for."""
        if not self.size:
            return np.zeros(self.shape, self.dtype)
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape)

    def chunks(self) -> Iterator[bytes]:
        """Read the bytes of the elements in order, at most 1 MiB at a time."""
        left = self.size
        with self.path.open("rb") as file:
            file.seek(self.offset)
            while left:
                data = file.read(min(left, 1 << 20))
                left -= len(data)
                yield data


class Captured:
    """This keeps what was captured of each operator or module, one execution after the other.

    That of this process alone: one that the program forks has its own copy of this, and would write
    to the same files. Where there is no room for more, that is said once, and what is there stays.

    Args:
        examples: how many to keep of each, along the first axis; None for all.

    Attributes:
        trouble: why no more is captured; None while all is well.
    """

    def __init__(self, examples: int | None) -> None:
        self.trouble: str | None = None
        self._process = os.getpid()
        self._folder = tempfile.mkdtemp(prefix="amanda_")
        weakref.finalize(self, _remove, self._folder, self._process)
        self._examples = examples
        self._kept: dict[str, list[tuple[np.dtype[Any], tuple[int, ...]]]] = {}

    def add(self, name: str, array: Array) -> None:
        """Keep what one execution gave, as far as there is room for more examples."""
        if self.trouble is not None or os.getpid() != self._process:
            return
        kept = self._kept.setdefault(name, [])
        if self._examples is not None:
            left = self._examples - sum(shape[0] if shape else 1 for _, shape in kept)
            if left <= 0:
                return
            array = array[:left] if array.ndim else array
        try:
            with self._path(name).open("ab") as file:
                file.write(np.ascontiguousarray(array).tobytes())
        except OSError as error:
            self.trouble = error.strerror or described(error)
            say(f"{self._folder}: {self.trouble}; capturing stopped, the program goes on")
            return
        kept.append((array.dtype, array.shape))

    def parts(self) -> Iterator[Part]:
        """Give one tensor for each name, along the first axis; numbered ones if they do not fit."""
        for name, kept in list(self._kept.items()):
            path = self._path(name)
            kinds = {(dtype, shape[1:]) for dtype, shape in kept if shape}
            if len(kinds) == 1 and all(shape for _, shape in kept):
                ((dtype, rest),) = kinds
                yield Part(name, dtype, (sum(s[0] for _, s in kept), *rest), path, 0)
                continue
            offset = 0
            for number, (dtype, shape) in enumerate(kept):
                part = Part(f"{name}/{number}", dtype, shape, path, offset)
                offset += part.size
                yield part

    def _path(self, name: str) -> Path:
        number = list(self._kept).index(name)
        return Path(self._folder, str(number))


def _remove(folder: str, process: int) -> None:
    """Remove a folder, unless this is a process that was forked from the one that uses it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
