"""Tools select operators by names: types, and globs of scopes, as the paths of modules are."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable
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


@functools.lru_cache(maxsize=1024)
def alike(type: str, known: frozenset[str]) -> frozenset[str]:
    """Return the types out of ``known`` for which ``type`` may be meant.

    Those of another style; if there are none, those spelled almost the same.
    """
    import difflib  # which takes long

    if spelled := in_another_style(type, known):
        return spelled
    by_bare = {_bare(name): name for name in known}
    near = difflib.get_close_matches(_bare(type), by_bare, 3, 0.75)
    return frozenset(by_bare[name] for name in near)


def in_another_style(type: str, known: Iterable[str]) -> frozenset[str]:
    """Return types that differ by capitals and underscores alone: ``LayerNorm``, ``layer_norm``."""
    return frozenset(name for name in known if _bare(name) == _bare(type))


def _bare(type: str) -> str:
    return type.replace("_", "").lower()
