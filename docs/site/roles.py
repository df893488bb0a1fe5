"""An extension of Griffe: docstrings of this project as Markdown, with links to what they name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import griffe

if TYPE_CHECKING:
    from collections.abc import Iterator

ROLE = re.compile(r":(?:class|func|meth|attr|mod|exc|data):`~?([\w.]+)`")
LITERAL = re.compile(r"::$", re.MULTILINE)
SEVERAL = re.compile(r"^( +)((?:\w+, )+\w+): (.*(?:\n\1 +.*)*)", re.MULTILINE)


class Roles(griffe.Extension):
    """Has ``:class:`Tool``` be a link, one colon where code follows two, and one item for a name.

    What is said of ``low, high`` at once is said of each.
    """

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Change the docstrings of a package once all of its names are known."""
        for member in _all_in(pkg):
            if (docstring := member.docstring) is not None:
                text = SEVERAL.sub(_each, LITERAL.sub(":", docstring.value))
                docstring.value = ROLE.sub(lambda role, of=member: _link(role[1], of), text)


def _all_in(of: griffe.Object) -> Iterator[griffe.Object]:
    yield of
    for member in of.members.values():
        if isinstance(member, griffe.Object):
            yield from _all_in(member)


def _each(item: re.Match[str]) -> str:
    return "\n".join(f"{item[1]}{name}: {item[3]}" for name in item[2].split(", "))


def _link(name: str, of: griffe.Object) -> str:
    """A link to what a docstring names, where the reference has it, and else the name alone."""
    first, dot, rest = name.partition(".")
    for scope in (of, of.parent):  # a class's docstring names its members, a method's its siblings
        try:
            path = scope.resolve(first) + dot + rest if scope is not None else name
        except griffe.NameResolutionError:
            continue
        return f'<autoref identifier="{path}" optional>`{name}`</autoref>'
    return f'<autoref identifier="{name}" optional>`{name}`</autoref>'
