"""``amanda tools`` shows the tools that have a name, with what their docstrings say."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from amanda_tools.notice import described, printable
from amanda_tools.registry import ambiguity, loaded, named_tools, options_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoint

    from rich.console import RenderableType

    from amanda_tools.registry import Option

_INDENT = 4  # of options below their tool


def catalogue() -> RenderableType:
    """List all tools that have a name, each with its options below it; columns are aligned."""
    named = [(name, list(_described(name, entries))) for name, entries in named_tools().items()]
    names = max((len(name) for name, _ in named), default=0)
    options = max(
        (len(option.name) + 1 for _, tools in named for _, found in tools for option in found),
        default=0,
    )
    rows: list[RenderableType] = []
    for name, tools in named:
        for about, found in tools:
            rows.append(_grid([(name, about)], max(names, options + _INDENT)))
            lines = [(f"{option.name}=", Text(_about(option))) for option in found]
            below = _grid(lines, max(names - _INDENT, options))
            rows += [Padding.indent(below, _INDENT)] if found else []
    return Group(*rows)


def _described(name: str, entries: list[EntryPoint]) -> Iterator[tuple[Text, list[Option]]]:
    """Give what each tool of a name does, and its options; or what is wrong with it instead."""
    if len(entries) > 1:
        yield Text(printable(ambiguity(name, entries)), style="yellow"), []
    for entry in entries:
        try:
            cls = loaded(entry)
            yield Text(_sentence((cls.__doc__ or "").strip().partition("\n\n")[0])), options_of(cls)
        except Exception as error:
            yield Text(described(error), style="yellow"), []


def _grid(rows: list[tuple[str, Text]], width: int) -> Table:
    """Make two columns, of which the first one has so many characters."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(min_width=width, no_wrap=True)
    grid.add_column()
    for label, about in rows:
        grid.add_row(Text(printable(label), style="bold"), about)
    return grid


def _about(option: Option) -> str:
    about = _sentence(option.help)
    if option.required:
        needed = "It is required."
    elif option.default is None:
        needed = "It is optional."
    else:
        needed = f"The default is {printable(repr(option.default))}."
    return f"{about} {needed}".strip()


def _sentence(text: str) -> str:
    """Make text of a docstring a sentence without markup."""
    text = re.sub(r":meth:`([^`]*)`", r"\1()", inspect.cleandoc(text))
    text = re.sub(r":\w+:`([^`]*)`", r"\1", text).replace("``", "'")
    text = printable(" ".join(text.split()))
    text = text[:1].upper() + text[1:]
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."
