"""Types that are spelled alike may be meant by each other."""

from __future__ import annotations

import functools
from collections.abc import Iterable


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
