"""``amanda run`` goes by flags, or else by the settings of the project, or else by defaults.

The settings of a project are the table ``[tool.amanda]`` of its pyproject.toml, or the file
amanda.toml, in the current folder or the nearest one above it that has either file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from amanda_tools.notice import refused
from amanda_tools.registry import Request, nearest, request

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

LEAST_WIDTH = 20  # of a table that can still be read
DEFAULT_DEPTH = 2

_FLAGS = "the command line"


class Settings(NamedTuple):
    """Settings are what a run works with.

    Attributes:
        tools: lines that name tools with their options; none for the default ones.
        ops: operator types to look at; none for all.
        depth: levels of modules in the table.
        width: characters of a line in tables; None for as many as fit.
        report: the file of an HTML report; None for none.
        file: the file of the project's settings; None where it has none.
        origins: where a setting comes from, by its name; one that is missing is the default.
    """

    tools: Sequence[str]
    ops: Sequence[str]
    depth: int
    width: int | None
    report: str | None
    file: Path | None
    origins: Mapping[str, str]

    def requests(self, default: Sequence[Request]) -> Sequence[Request]:
        """Return the tools to run under, which are the default ones if no other is named.

        Raises:
            click.UsageError: a line names none, and which file it stands in.
        """
        origin = self.origins.get("tools")
        if self.file is None or origin != str(self.file):
            return [request(line) for line in self.tools] or default
        if str(self.file.parent) not in sys.path:  # where the project's own tools are
            sys.path.append(str(self.file.parent))
        try:
            return [request(line) for line in self.tools] or default
        except click.UsageError as error:
            raise click.UsageError(f"tools of {origin}: {error.message}") from error

    def described(self, default: Sequence[Request]) -> Iterator[str]:
        """Give a line for each setting: what it is, and where it comes from."""
        yield f"the project's settings: {self.file or 'none'}"
        tools = self.tools or [wanted.label for wanted in default]
        shown = {
            "tools": json.dumps(list(tools), ensure_ascii=False),
            "ops": json.dumps(list(self.ops), ensure_ascii=False) if self.ops else "all",
            "depth": str(self.depth),
            "width": "as the terminal" if self.width is None else str(self.width),
            "report": "none" if self.report is None else json.dumps(self.report),
        }
        for name, value in shown.items():
            yield f"{name} = {value}, from {self.origins.get(name, 'the defaults')}"


def settings_of(flags: Mapping[str, Any]) -> Settings:
    """Return what a run in this folder works with; a flag replaces the project's setting.

    Args:
        flags: settings that the command line may give, by name; None or nothing where it does not.

    Raises:
        click.UsageError: the project's settings cannot be read, or hold what is no setting.
    """
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    file, table = _of_project()
    values = {**table, **given}
    origins = {**dict.fromkeys(table, str(file)), **dict.fromkeys(given, _FLAGS)}
    return Settings(
        values.get("tools", ()),
        values.get("ops", ()),
        values.get("depth", DEFAULT_DEPTH),
        values.get("width"),
        values.get("report"),
        file,
        origins,
    )


def _of_project() -> tuple[Path | None, Mapping[str, Any]]:
    """Return the file of the project's settings, and what it holds."""
    for place in _folders():
        own, shared = place / "amanda.toml", place / "pyproject.toml"
        found = _table(shared) if os.path.isfile(shared) else None
        if os.path.isfile(own):
            if found is not None:
                raise click.UsageError(f"settings in both {own} and {shared}; keep one of them")
            return own, _checked(own, _read(own))
        if found is not None:
            return shared, _checked(shared, found)
        if os.path.isfile(shared):  # the project ends here
            return None, {}
    return None, {}


def _folders() -> Sequence[Path]:
    """List the current folder, and those above it; none if it was removed."""
    try:
        folder = Path.cwd()
    except OSError:
        return ()
    return (folder, *folder.parents)


def _table(pyproject: Path) -> Mapping[str, Any] | None:
    """Return the table ``[tool.amanda]``, if there is one."""
    tools = _read(pyproject).get("tool")
    table = tools.get("amanda") if isinstance(tools, dict) else None
    if table is not None and not isinstance(table, dict):
        raise click.UsageError(f"{pyproject}: tool.amanda is no table; write [tool.amanda]")
    return table


def _read(path: Path) -> dict[str, Any]:
    with refused(f"{path} cannot be read"), path.open("rb") as file:
        table: dict[str, Any] = tomllib.load(file)
    return table


def _checked(path: Path, table: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in table.items():
        if name not in _KINDS:
            raise click.UsageError(f"{path}: no setting {name!r}{nearest(name, _KINDS)}")
        fits, kind = _KINDS[name]
        if not fits(value):
            raise click.UsageError(f"{path}: {name} is {kind}, not {_shown(value)}")
    return table


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_name, value))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


_KINDS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "tools": (_are_names, 'a list of tools, as ["flops", "trace:out=trace.jsonl"]'),
    "ops": (_are_names, 'a list of operator types, as ["conv2d"]'),
    "depth": (lambda value: _is_whole(value, 0), "a whole number from 0 on"),
    "width": (lambda value: _is_whole(value, LEAST_WIDTH), f"a whole number from {LEAST_WIDTH} on"),
    "report": (_is_name, 'a file, as "report.html"'),
}
