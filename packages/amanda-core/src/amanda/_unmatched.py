"""What tools select by type and never ran: said once, when the scope is left."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Collection, Iterable

from amanda._driver import Driver
from amanda._engine import Scope
from amanda._errors import AmandaWarning
from amanda._tool import Tool
from amanda._vocabulary import is_understood, speaks_natively

_told: weakref.WeakSet[Tool] = weakref.WeakSet()


def warn_of_unmatched(tools: Iterable[Tool], scope: Scope, drivers: Collection[Driver]) -> None:
    """Name in one warning the types that tools selected and that never ran in a scope.

    Nothing is said of a scope in which nothing else ran, and of a tool it is said once. A type
    beside others that did run is named only if it is another spelling of one that ran, or if
    the tool was restricted to it.
    """
    found: dict[str, tuple[str | None, list[str]]] = {}
    for tool in tools:
        unmatched = _unmatched(tool, scope, drivers) if tool not in _told else {}
        if unmatched:
            _told.add(tool)
        for type, near in unmatched.items():
            names = found.setdefault(type, (near, []))[1]
            names += [tool.name] if tool.name not in names else []
    if found:
        listed = "; ".join(
            f"{type!r} of {', '.join(names)}" + (f", did you mean {near!r}?" if near else "")
            for type, (near, names) in found.items()
        )
        message = f"types of operators that never ran in this scope: {listed}"
        warnings.warn(message, AmandaWarning, stacklevel=4)


def _unmatched(tool: Tool, scope: Scope, drivers: Iterable[Driver]) -> dict[str, str | None]:
    """Types that a tool selected and that never ran, each with the nearest that did."""
    wanted: set[str] = set()
    seen: set[str] = set()
    asked: set[str] = set()  # by whoever runs the tool, and not among others that may be there
    for driver in drivers:
        if not is_understood(tool, driver):
            continue
        native = speaks_natively(tool, driver)
        spelled = driver.canonical_type if native else str
        only = set(map(spelled, tool.restricted_to or ()))
        types = set[str]().union(*(s.types(spelled) or () for s in tool.subscriptions))
        expected = only if tool.lists_candidates else types
        wanted |= expected
        asked |= expected & only
        seen |= scope.seen.get(driver.vocabulary if native else tool.vocabulary or "", set())
    others = frozenset(seen - wanted)
    missing = sorted(wanted - seen) if others else []
    if wanted & seen:
        spellings = {type: in_another_style(type, others) for type in missing}
        return {t: min(near, default=None) for t, near in spellings.items() if near or t in asked}
    return {type: min(alike(type, others), default=None) for type in missing}


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
    import difflib  # which takes long

    by_bare = {_bare(name): name for name in known}
    return [by_bare[name] for name in difflib.get_close_matches(_bare(type), by_bare, 3, 0.75)]
