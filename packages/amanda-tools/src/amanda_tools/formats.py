"""What tools found is written to files as JSON, CSV or a picture, by the ending of the name."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from amanda_tools.document import Document
from amanda_tools.findings import Findings, field_names
from amanda_tools.output import same_file
from amanda_tools.pictures import Pictured

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_Row = TypeVar("_Row")


_PLAIN = (".json", ".csv")


def ending_of(path: str | os.PathLike[str], known: Sequence[str]) -> str:
    """Return the ending of a file's name, which has to be known; for the null device the first.

    Raises:
        ValueError: it has another one, or none, or the name is empty.
    """
    if not os.fspath(path):
        raise ValueError("the name of the file to write is empty")
    ending = os.path.splitext(path)[1].lower()
    if ending in known:
        return ending
    if same_file(path, os.devnull):
        return known[0]
    *some, last = known
    raise ValueError(
        f"{os.fspath(path)!r}: what is written goes by the ending, which has to be "
        f"{', '.join(some)} or {last}"
    )


class Saved(Document):
    """A saved file holds what a tool found, in the format that its ending says.

    Args:
        path: the file.
        endings: those that its name may have.

    Attributes:
        ending: the one that it has.

    Raises:
        OSError: it cannot be written there.
        ValueError: its name ends in something else.
    """

    def __init__(self, path: str | os.PathLike[str], endings: Sequence[str] = _PLAIN) -> None:
        self.ending = ending_of(path, endings)
        super().__init__(path)
        if self.ending == ".json":
            self._nothing = b"null\n"


class Saving(Findings[_Row]):
    """This is a base of tools whose findings go into a file, if one is named, when a scope is left.

    It stands ahead of :class:`amanda.Tool` among the bases.

    Attributes:
        endings: what the name of the file may end in, which says its format.
    """

    endings: ClassVar[Sequence[str]] = _PLAIN
    _saved: Saved | None = None

    def save_to(self, out: str | os.PathLike[str] | None) -> None:
        """Name the file; None for none.

        Raises:
            OSError: it cannot be written there.
            ValueError: its name ends in something else.
        """
        self._saved = None if out is None else Saved(out, self.endings)

    def and_saved(self, said: str) -> str:
        """Add to a line of a report in which file that is, if it is in one."""
        return said if self._saved is None else f"{said}; {self._saved.state}"

    def open(self) -> None:
        """Make the file, which leaving the scope does otherwise.

        Raises:
            OSError: it cannot be written.
        """
        if self._saved is not None:
            self._saved.open()

    def on_exit(self) -> None:
        """Bring the file up to date."""
        if self._saved is not None:
            self._saved.write(self.text(self._saved.ending))

    def text(self, ending: str) -> str | bytes:
        """Return what was found, in the format of an ending."""
        return text_of(self, ending)


def text_of(findings: Findings[Any], ending: str) -> str:
    """Return what was found as JSON, CSV or a picture, by the ending of a file.

    JSON is what :meth:`Findings.to_dict` gives; CSV has a line for each row, in which what is
    neither text nor a number is JSON.
    """
    if ending == ".svg" and isinstance(findings, Pictured):
        return findings.to_svg()
    if ending == ".json":
        return json_of(findings.to_dict(), indent=1) + "\n"
    return csv_of(field_names(findings.row_type), findings.rows())


def json_of(value: Any, indent: int | None = None) -> str:
    """Write plain values as JSON, which has no number for infinities and for what is none: those
    are the strings ``Infinity``, ``-Infinity`` and ``NaN``.
    """
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_spelled(value), indent=indent)


def save(findings: Findings[Any], path: str | os.PathLike[str]) -> None:
    """Write what was found, as JSON, CSV or a picture by the ending of a file's name.

    Raises:
        OSError: it cannot be written there.
        ValueError: its name ends in something else.
    """
    saved = Saved(path, findings.endings if isinstance(findings, Pictured) else _PLAIN)
    saved.open()
    saved.write(text_of(findings, saved.ending))


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return what a tool wrote to a file that ends in ``.json``.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not complete, or the process ended before anything was written.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)}: not complete JSON: {error}") from None
    if found is None:
        raise ValueError(
            f"{os.fspath(path)}: nothing was written to it, as where its process was killed"
        )
    return found


def csv_of(names: Sequence[str], rows: Iterable[object]) -> str:
    """Write rows as lines of comma-separated values, the names first."""
    return csv_line(names) + "".join(csv_line(getattr(row, n) for n in names) for row in rows)


def csv_line(values: Iterable[object]) -> str:
    """Write one line of comma-separated values."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(map(_plain, values))
    return text.getvalue()


def _plain(value: object) -> object:
    if value is None or isinstance(value, (str, int, float)):
        return value
    return json_of(asdict(value) if is_dataclass(value) else value)  # type: ignore[arg-type]


def _spelled(value: Any) -> Any:
    """Return a plain value in which numbers that JSON has not are strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    if isinstance(value, dict):
        return {key: _spelled(part) for key, part in value.items()}
    return [_spelled(part) for part in value] if isinstance(value, (list, tuple)) else value
