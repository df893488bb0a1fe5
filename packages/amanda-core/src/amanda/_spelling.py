"""Names of operators that are spelled like others."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@functools.lru_cache(maxsize=1024)
def alike(type: str, known: frozenset[str]) -> frozenset[str]:
    """Types out of ``known`` for which ``type`` may be meant.

    Those of another style; if there are none, those spelled almost the same.
    """
    return in_another_style(type, known) or frozenset(_close(type, known))


def in_another_style(type: str, known: Iterable[str]) -> frozenset[str]:
    """Types that differ by capitals and underscores alone: ``LayerNorm`` and ``layer_norm``."""
    return frozenset(name for name in known if _bare(name) == _bare(type))


def _bare(type: str) -> str:
    return type.replace("_", "").lower()


def _close(type: str, known: Iterable[str]) -> list[str]:
    import difflib

    by_bare = {_bare(name): name for name in known}
    return [by_bare[name] for name in difflib.get_close_matches(_bare(type), by_bare, 3, 0.75)]
