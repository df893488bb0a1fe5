"""What tools select by type or scope and never ran is said once, when a scope is left."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Collection, Iterable
from fnmatch import fnmatchcase

from amanda._drivers.driver import Driver
from amanda._drivers.vocabulary import context_map, is_understood, speaks_natively
from amanda._errors import AmandaWarning
from amanda._operators.names import alike, in_another_style, meant, selects
from amanda._operators.points import View
from amanda._threads.active import Scope
from amanda._tools.subscription import Subscription
from amanda._tools.tool import Tool

_told: weakref.WeakSet[Tool] = weakref.WeakSet()


def warn_of_unmatched(tools: Iterable[Tool], scope: Scope, drivers: Collection[Driver]) -> None:
    """Name in one warning what tools selected and never ran: types, and globs of scopes.

    Nothing is said of a scope in which nothing else ran, and of a tool it is said once. A type
    beside others that did run is named only if it is another spelling of one that ran, or if
    the tool was restricted to it, for tools list types that a model may have. A glob is one of a
    model at hand, and named in any case; so is a type that backward operators alone have, of a
    tool that looks for it among forward ones, and one that no operator of the backends at hand has
    in the vocabulary that the tool speaks.
    """
    found: dict[str, dict[tuple[str, str | None], list[str]]] = {}
    for tool in tools:
        if tool in _told:
            continue
        backward = _of_backward(tool, scope, drivers)
        types = _types(tool, scope, drivers)
        unknown = _unknown(tool, drivers)
        unmatched = {
            f"types that nothing here has in {tool.vocabulary!r}, which the tool speaks (gradients "
            "are seen with backward=True alone, a backend's own types without namespace=)": unknown,
            "types of backward operators, which are seen with backward=True alone": backward,
            "types of operators that never ran in this scope": {
                type: near for type, near in types.items() if type not in {*backward, *unknown}
            },
            "scopes of a model in which nothing that is wanted ran": _globs(tool, scope.places),
            "modules that were never called in this scope": _modules(tool, scope),
        }
        for what, names in unmatched.items():
            for named in names.items():
                _told.add(tool)
                selecting = found.setdefault(what, {}).setdefault(named, [])
                selecting += [tool.name] if tool.name not in selecting else []
    said = [
        f"{what}: {'; '.join(_listed(*named, tools) for named, tools in names.items())}"
        for what, names in found.items()
    ]
    if said:
        warnings.warn("; ".join(said), AmandaWarning, stacklevel=5)


def _listed(name: str, near: str | None, tools: Iterable[str]) -> str:
    return f"{name!r} of {', '.join(tools)}" + (f", did you mean {near!r}?" if near else "")


def _globs(tool: Tool, places: Collection[str]) -> dict[str, str | None]:
    """Find the globs of a tool that selected no scope, each with one that would have."""
    globs = sorted({glob for s in _of_operators(tool) for glob in s.scopes or ()})
    missing = [glob for glob in globs if not any(selects(glob, place) for place in places)]
    return {glob: meant(glob, places) for glob in missing} if places else {}


def _modules(tool: Tool, scope: Scope) -> dict[str, str | None]:
    """Find paths and classes of modules of which none was called, and what may be meant."""
    paths, classes = scope.paths, frozenset(scope.classes)
    subscriptions = [s for s in tool.subscriptions if s.view is View.MODULE] if classes else []
    globs = {glob for s in subscriptions for glob in s.scopes or ()}
    missing = [glob for glob in sorted(globs) if not any(fnmatchcase(path, glob) for path in paths)]
    types = () if tool.lists_candidates else {cls for s in subscriptions for cls in s.ops or ()}
    found = {cls: min(alike(cls, classes), default=None) for cls in sorted({*types} - classes)}
    return {glob: meant(glob, paths) for glob in missing} | found


def _of_operators(tool: Tool) -> list[Subscription]:
    return [s for s in tool.subscriptions if s.view is not View.MODULE]


def _types(tool: Tool, scope: Scope, drivers: Iterable[Driver]) -> dict[str, str | None]:
    """Find the types that a tool selected and that never ran, each with the nearest that did."""
    wanted: set[str] = set()
    seen: set[str] = set()
    asked: set[str] = set()  # by whoever runs the tool, and not among others that may be there
    for driver in drivers:
        if not is_understood(tool, driver):
            continue
        native = speaks_natively(tool, driver)
        spelled = driver.canonical_type if native else str
        expected = _expected(tool, _of_operators(tool), spelled)
        wanted |= expected
        asked |= expected & set(map(spelled, tool.restricted_to or ()))
        vocabulary = driver.vocabulary if native else tool.vocabulary or ""
        seen |= scope.seen[vocabulary] | scope.gradients[vocabulary]
    others = frozenset(seen - wanted)
    missing = sorted(wanted - seen) if others else []
    if wanted & seen:
        spellings = {type: in_another_style(type, others) for type in missing}
        return {t: min(near, default=None) for t, near in spellings.items() if near or t in asked}
    return {type: min(alike(type, others), default=None) for type in missing}


def _expected(
    tool: Tool, subscriptions: Iterable[Subscription], spelled: Callable[[str], str]
) -> set[str]:
    """Return the types that a tool selects and that are no mere candidates."""
    if tool.lists_candidates:
        return set(map(spelled, tool.restricted_to or ()))
    return set[str]().union(*(s.types(spelled) or () for s in subscriptions))


def _of_backward(tool: Tool, scope: Scope, drivers: Iterable[Driver]) -> dict[str, str | None]:
    """Find the types of backward operators that a tool looks for among forward ones alone."""
    looking = _of_operators(tool)
    backward = [s for s in looking if s.view is View.BACKWARD]
    forward = [s for s in looking if s.view is not View.BACKWARD]
    found: set[str] = set()
    ran: set[str] = set()
    for driver in drivers:
        if not speaks_natively(tool, driver):
            continue
        spelled = driver.canonical_type
        ran |= scope.seen[driver.vocabulary].union(*(s.types(spelled) or () for s in backward))
        known = scope.gradients[driver.vocabulary]
        for type in _expected(tool, forward, spelled) if forward else ():
            if type in known or driver.is_backward_type(type):
                found.add(type)
    return dict.fromkeys(sorted(found - ran))


def _unknown(tool: Tool, drivers: Iterable[Driver]) -> dict[str, str | None]:
    """Find the types by which a tool selects nothing, in another vocabulary than the backends'.

    Beside others that an operator may have they are candidates, as in every list.
    """
    understanding = [driver for driver in drivers if is_understood(tool, driver)]
    if tool.lists_candidates or any(speaks_natively(tool, driver) for driver in understanding):
        return {}
    maps = [(context_map(d.vocabulary, tool.vocabulary or ""), d) for d in understanding]
    found: set[str] = set()
    for subscription in _of_operators(tool):
        selections = [each.select(subscription, driver) for each, driver in maps]
        if selections and all(s.forward == frozenset() and not s.near for s in selections):
            found |= subscription.types() or set()
    return dict.fromkeys(sorted(found))
