"""The command shows at the end tables of what the tools found, and their reports."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleRenderable, RenderHook
from rich.segment import Segment

from amanda_tools.notice import described, emit, on_terminal, printable, say
from amanda_tools.place import Place
from amanda_tools.progress import progress
from amanda_tools.report import UNITS, Column, HasColumns, HasReport, by_module, by_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import amanda
    from rich.console import ConsoleOptions, RenderableType, RenderResult

    from amanda_tools.merging import Merged

WIDE = 10_000  # characters of a line that is not for a terminal: as many as need be


@dataclass
class Contribution:
    """This is what a tool contributes to tables, and what else it has to say.

    Attributes:
        tool: the tool, or what several processes' tools found as one.
        name: what it is called.
        columns: numbers by operator.
        parts: what is printed below the tables.
    """

    tool: Any
    name: str
    columns: Sequence[Column] = ()
    parts: list[RenderableType] = field(default_factory=list)


class Results:
    """Results show what tools found on the standard error, unless they are to be silent.

    A tool that fails at it is said, and the others are shown all the same. Nothing is shown where
    the program, or its reader, has closed the standard error.

    Attributes:
        silent: whether they are.
        tools_failed: whether a tool failed.
        contributions: what was shown, of each tool.
    """

    def __init__(self, *, silent: bool = False) -> None:
        self.silent = silent
        self.tools_failed = False
        self.contributions: list[Contribution] = []
        with contextlib.suppress(Exception):  # the program, or its reader, may have closed it
            sys.stdout.flush()

    def show(
        self, tools: Sequence[amanda.Tool | Merged], depth: int, width: int | None = None
    ) -> None:
        """Show tables and reports.

        Args:
            tools: whose they are.
            depth: levels of modules.
            width: of the tables; None for that of the terminal, without one as wide as need be.
        """
        self.contributions = [Contribution(tool, _name(tool)) for tool in tools]
        columns = self._columns(self.contributions)
        if any(column.values for column in columns):
            with self.told("the tables cannot be shown"):
                self._print(by_module(columns, depth), by_type(columns), width=width)
        for shown in self.contributions:
            with self.told(f"{shown.name} cannot report"):
                report = shown.tool.report() if isinstance(shown.tool, HasReport) else None
                for part in report if isinstance(report, list) else [report]:
                    if part is not None:
                        shown.parts.append(part)
                        self._print(part, width=width)

    def _columns(self, contributions: Sequence[Contribution]) -> list[Column]:
        columns: list[Column] = []
        with progress("adding up", len(contributions)) as step:  # after a long run there is much
            for each in contributions:
                if isinstance(each.tool, HasColumns):
                    with self.told(f"{each.name} cannot tell what it found"):
                        each.columns = _checked(each.tool.columns())
                        columns += each.columns
                step()
        return columns

    def _print(self, *what: RenderableType, width: int | None) -> None:
        if not self.silent:
            _print(*what, width=width)

    @contextlib.contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Say that a tool failed in a ``with`` block, and go on behind it."""
        try:
            yield
        except (Exception, SystemExit) as error:
            self.tools_failed = True
            say(f"{what}: {described(error)}")


def _checked(columns: Sequence[Column]) -> Sequence[Column]:
    """Return the columns if they can be added up and shown, or raise an error."""
    for column in columns:
        if not isinstance(column, Column) or column.unit not in UNITS:
            raise TypeError(f"{column!r} is no amanda_tools.Column with one of the units {UNITS}")
        for place, value in column.values.items():
            if not isinstance(place, Place) or not isinstance(value, Real):
                raise TypeError(f"column {column.title!r} has {value!r} at {place!r}")
    return columns


def _name(tool: amanda.Tool | Merged) -> str:
    try:
        return str(tool.name)
    except Exception:  # it may be anything that a tool defines
        return type(tool).__name__


def _print(*what: RenderableType, width: int | None) -> None:
    """Print on the standard error; strings as they are, in one piece."""
    if all(isinstance(part, str) for part in what):
        emit("".join(f"{printable(str(part))}\n" for part in what))
        return
    page, seen = _Page(), on_terminal()
    if width is None and not seen:
        width = WIDE
    console = Console(file=page, width=width, force_terminal=seen or None)
    console.push_render_hook(_Spelled())
    console.print(*what)
    emit(without_trailing_blanks(page.getvalue()))


def without_trailing_blanks(text: str) -> str:
    """Return ``text`` with no blanks at the ends of its lines."""
    return re.sub(r"[^\S\n]+$", "", text, flags=re.MULTILINE)


class _Page(io.StringIO):
    """A page is to be written on the standard error, in characters that it has."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Return the encoding of the standard error."""
        return str(getattr(sys.stderr, "encoding", None) or "utf-8")


class _Spelled(RenderHook):
    """This spells out what a terminal would obey in whatever rich prints, but for rich's styles."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_SpelledOut(renderable) for renderable in renderables]


class _SpelledOut:
    def __init__(self, renderable: ConsoleRenderable) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._renderable, options):
            text = segment.text if segment.control else printable(segment.text)
            yield Segment(text, segment.style, segment.control)
