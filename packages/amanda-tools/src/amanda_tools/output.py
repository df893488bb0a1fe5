"""Each file that tools write is written by one tool of one process."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

try:
    import fcntl
except ImportError:  # on Windows two runs with one file are not told apart
    fcntl = None  # type: ignore[assignment]

# Variables by which launchers tell a process its rank, and how many there are.
_RANKS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


@runtime_checkable
class HasFile(Protocol):
    """This is a tool that writes a file."""

    def open(self) -> None:
        """Make the file; called once all tools are built and the program is known to compile."""


class Output:
    """An output is a file that a tool writes; nothing of it is touched before :meth:`open`.

    Where several processes run one program, each has its rank in the name of its file.

    Args:
        path: the file, overwritten if it exists.

    Attributes:
        path: where it is.

    Raises:
        OSError: it cannot be written there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = _of_this_process(Path(os.path.expanduser(path)).absolute())
        self._file: int | None = None
        self._waiting: list[tuple[bytes, int]] | None = None  # what is not written yet
        self._close: weakref.finalize[..., Output] | None = None
        _check(self.path)

    def open(self) -> None:
        """Make it empty, and have no other process write it from now on.

        Within :func:`all_or_none` it is made empty, and written, when the ``with`` block ends.

        Raises:
            OSError: that is not possible, or another process is writing it.
        """
        _check(self.path)
        new = not self.path.exists()
        file = _beyond_standard(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o666))
        try:
            status = os.fstat(file)
            _give_up(status)
            _lock(file, self.path)
            if _together is not None:
                self._waiting = []
                _together.append((self, new))
            elif stat.S_ISREG(status.st_mode):
                os.ftruncate(file, 0)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        self._close = weakref.finalize(self, os.close, file)
        _opened.add(self)

    def close(self) -> None:
        """Write no more."""
        self._file = None
        if self._close is not None:
            self._close()

    def write(self, data: bytes, at: int) -> None:
        """Write ``data`` at a position.

        Raises:
            OSError: a part of it may be written.
        """
        file = self._opened_file()
        if self._waiting is not None:
            self._waiting.append((data, at))
            return
        os.lseek(file, at, os.SEEK_SET)
        while data:
            data = data[os.write(file, data) :]

    def end(self, at: int) -> None:
        """Have it end at a position that it reaches."""
        os.ftruncate(self._opened_file(), at)

    def size(self) -> int:
        """Return how many bytes are in it.

        Raises:
            OSError: it is not at its path any more.
        """
        status = os.fstat(self._opened_file())
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(status, os.stat(self.path)):
                return status.st_size
        raise OSError(errno.ENOENT, "it was removed", str(self.path))

    def _begin(self) -> None:
        """Make it empty and write what waits to be written."""
        waiting, self._waiting = self._waiting, None
        if self._file is None or waiting is None:  # given up for another
            return
        if stat.S_ISREG(os.fstat(self._file).st_mode):
            os.ftruncate(self._file, 0)
        for data, at in waiting:
            self.write(data, at)

    def _opened_file(self) -> int:
        if self._file is None:
            raise OSError(errno.EBUSY, "another tool writes it by now", str(self.path))
        return self._file


@contextlib.contextmanager
def all_or_none() -> Iterator[None]:
    """Have the files that are opened in a ``with`` block made only if all of it succeeds.

    Until then they are as they were, and locked.
    """
    global _together
    opened: list[tuple[Output, bool]] = []
    _together = opened
    try:
        yield
    except BaseException:
        for output, new in opened:
            if new:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.realpath(output.path))
            output.close()
        raise
    finally:
        _together = None
    for output, _ in opened:
        output._begin()


def same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Tell whether two paths are of one file, which need not be there yet."""
    paths = [os.path.realpath(os.path.expanduser(path)) for path in (one, other)]
    if os.path.normcase(paths[0]) == os.path.normcase(paths[1]):
        return True
    try:
        return os.path.samefile(*paths)
    except (OSError, ValueError):
        return False


_opened: weakref.WeakSet[Output] = weakref.WeakSet()
# Those that are opened together, and whether their files are new; None outside of all_or_none().
_together: list[tuple[Output, bool]] | None = None


def _leave_to_parent() -> None:
    for output in list(_opened):
        output.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def _of_this_process(path: Path) -> Path:
    rank = _rank(os.environ)
    if rank is None or not path.name or (path.exists() and not path.is_file()):
        return path
    return path.with_name(f"{path.stem}.{rank}{path.suffix}")


def _rank(environment: Mapping[str, str]) -> str | None:
    """Return what tells this process from the others that a launcher started with it."""
    for rank, size in _RANKS:
        if environment.get(rank, "").isdecimal() and environment.get(size) != "1":
            return f"rank{environment[rank]}"
    try:  # as TensorFlow's strategies have it
        config = json.loads(environment.get("TF_CONFIG", ""))
        type, index = config["task"]["type"], int(config["task"]["index"])
        processes = sum(len(addresses) for addresses in config["cluster"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return f"{type}{index}" if processes > 1 and str(type).isidentifier() else None


def _check(path: Path) -> None:
    """Raise OSError if a file cannot be written there; it is not touched."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path)) from None
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode) and not same_file(path, os.devnull):
        raise OSError(
            errno.ESPIPE, "it is no regular file, which can be completed later", str(path)
        )
    if any(os.path.samestat(status, stream) for stream in _standard_streams()):
        raise OSError(errno.EBUSY, "it is the program's standard input or output", str(path))
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def _standard_streams() -> Iterator[os.stat_result]:
    for number in (0, 1, 2):
        with contextlib.suppress(OSError):  # closed
            status = os.fstat(number)
            if stat.S_ISREG(status.st_mode):
                yield status


def _give_up(status: os.stat_result) -> None:
    """Have this process's older writer of a file write it no more, as when a tool is made anew."""
    for other in list(_opened) if stat.S_ISREG(status.st_mode) else ():
        if other._file is not None and os.path.samestat(os.fstat(other._file), status):
            other.close()


def _lock(file: int, path: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(errno.EBUSY, "another process is writing it", str(path)) from None
    except OSError:  # a file system that knows no locks
        pass


def _beyond_standard(file: int) -> int:
    """Move a file to a number that no standard stream has, also where some are closed."""
    if file > 2 or fcntl is None:
        return file
    moved = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(file)
    return moved
