"""An extension of Griffe: docstrings that name others as Sphinx does become Markdown with links."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import griffe

if TYPE_CHECKING:
    from collections.abc import Iterator

ROLE = re.compile(r":(?:class|func|meth|attr|mod|exc|data):`~?([\w.]+)`")
LITERAL = re.compile(r"::$", re.MULTILINE)


class Roles(griffe.Extension):
    """Links ``:class:`Tool``` to ``amanda.Tool``, and has one colon where code follows two."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Change the docstrings of a package once all of its names are known."""
        for member in _all_in(pkg):
            if (docstring := member.docstring) is not None:
                linked = ROLE.sub(lambda role, of=member: _link(role[1], of), docstring.value)
                docstring.value = LITERAL.sub(":", linked)


def _all_in(of: griffe.Object) -> Iterator[griffe.Object]:
    yield of
    for member in of.members.values():
        if isinstance(member, griffe.Object):
            yield from _all_in(member)


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
