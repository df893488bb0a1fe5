"""Globs select scopes: the paths of modules, and the name scopes of graphs."""

from __future__ import annotations

import functools
from collections.abc import Collection
from fnmatch import fnmatchcase

SEPARATORS = "./"
"""What stands between a scope and one within it, whatever a backend's scopes are made of."""


@functools.lru_cache(maxsize=4096)
def selects(glob: str, scope: str) -> bool:
    """Tell whether a glob matches a scope, or one that it lies in.

    ``*`` stands for any text, also across separators. The empty glob is for what lies in no scope.
    """
    if not glob or not scope:
        return fnmatchcase(scope, glob)
    ends = [i for i, character in enumerate(scope) if character in SEPARATORS]
    return any(fnmatchcase(scope[:end], glob) for end in (*ends, len(scope)))


@functools.lru_cache(maxsize=4096)
def may_select_within(glob: str, scope: str) -> bool:
    """Tell whether there may be a scope within this one that a glob selects.

    That is so where some beginning of the glob matches the path as far as it goes; the outermost
    scope, whose path is empty, has all others within it.
    """
    if not scope or selects(glob, scope):
        return bool(glob)
    beginnings = [glob[:end] for end in range(1, len(glob) + 1)]
    return any(fnmatchcase(scope + s, begin) for s in SEPARATORS for begin in beginnings)


def meant(glob: str, scopes: Collection[str]) -> str | None:
    """Guess what is meant by a glob that selects none of these scopes.

    That is the same with the separators of another backend, or within a scope that was left out.
    """
    for other in (glob, glob.replace(".", "/"), glob.replace("/", ".")):
        for candidate in (other, *(f"*{separator}{other}" for separator in SEPARATORS)):
            if candidate != glob and any(selects(candidate, scope) for scope in scopes):
                return candidate
    return None
