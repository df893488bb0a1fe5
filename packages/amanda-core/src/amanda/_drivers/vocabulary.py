"""Tools speak vocabularies: the backend's own, and those that context maps translate to."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from amanda._drivers.discovery import (
    NAMESPACES,
    PORTABLE,
    entry_points_of,
    native_vocabularies,
    warn_once,
)
from amanda._errors import AmandaError, MissingContextMapError, UnsupportedError
from amanda._operators.points import View

if TYPE_CHECKING:
    from amanda._drivers.driver import Driver
    from amanda._plans.context_map import ContextMap
    from amanda._tools.tool import Tool

_GROUP = "amanda.context_maps"  # of entry points


def spoken(namespace: str | None) -> str | None:
    """Return the vocabulary that a namespace names; None for that of the backend at hand.

    A name that is none of a backend's, and to which no package announces a context map, is one of
    the tool's own.
    """
    name = NAMESPACES.get(namespace or "amanda", namespace)
    return name if name is None or name in PORTABLE or name in _vocabularies() else None


def _vocabularies() -> set[str]:
    announced = (entry.name.partition(":")[2] for entry in entry_points_of(_GROUP))
    return {*native_vocabularies(), *PORTABLE, *announced}


def speaks_natively(tool: Tool, driver: Driver) -> bool:
    """Tell whether a tool speaks the backend's own vocabulary."""
    return tool.vocabulary in (None, driver.vocabulary)


def context_map(backend: str, vocabulary: str) -> ContextMap:
    """Load the map from a backend's vocabulary to another one.

    Raises:
        MissingContextMapError: none is installed, or it cannot be loaded.
    """
    found = _map_or_reason(backend, vocabulary)
    if isinstance(found, str):
        raise MissingContextMapError(found)
    return found


@functools.cache
def _map_or_reason(backend: str, vocabulary: str) -> ContextMap | str:
    """Load the map from a backend's vocabulary to another one, or say why there is none."""
    name = f"{backend}:{vocabulary}"
    for entry in (e for e in entry_points_of(_GROUP) if e.name == name):
        try:
            return entry.load()  # type: ignore[no-any-return]
        except Exception as error:
            return f"the context map {name} cannot be loaded: {type(error).__name__}: {error}"
    return (
        f"nothing here translates {backend!r} into {vocabulary!r}; python -m pip install "
        f"amanda-contextmap, or a package that announces the context map {name}"
    )


def is_understood(tool: Tool, driver: Driver) -> bool:
    """Tell whether a tool sees the operators of a backend, for it speaks as that does or a map
    translates.

    What speaks the own vocabulary of another backend sees nothing of this one.
    """
    if speaks_natively(tool, driver):
        return True
    return not isinstance(_map_or_reason(driver.vocabulary, tool.vocabulary or ""), str)


def check_sees(tool: Tool, drivers: Sequence[Driver]) -> None:
    """Say of which backends a tool sees nothing, though it is not meant for another one.

    Raises:
        MissingContextMapError: of none of them, or what it speaks is misspelt.
        UnsupportedError: it looks at modules, and none of them has these.
    """
    vocabulary = tool.vocabulary
    if vocabulary is None and tool.namespace not in (None, "", "amanda"):
        _check_own_name(tool, tool.namespace)
    unseen: list[tuple[str, type[AmandaError], list[Any]]] = []  # with a reason for each driver
    if vocabulary is not None and vocabulary not in native_vocabularies():
        maps = [_map_or_reason(driver.vocabulary, vocabulary) for driver in drivers]
        unseen.append(("nothing", MissingContextMapError, maps))
    if any(s.view is View.MODULE and not s.optional for s in tool.subscriptions):
        reason = "has no modules that tools can see; register with add_inst_for_op instead"
        blind = [d.has_modules or f"add_inst_for_module: {d.backend} {reason}" for d in drivers]
        unseen.append(("no modules", UnsupportedError, blind))
    for what, error, reasons in unseen:
        known = zip(drivers, reasons, strict=True)
        missing = [(driver.backend, why) for driver, why in known if isinstance(why, str)]
        if missing and len(missing) == len(drivers):
            raise error(f"{tool.name}: {missing[0][1]}")
        for backend, why in missing:
            warn_once(f"{tool.name} sees {what} of {backend}: {why}")


def _check_own_name(tool: Tool, namespace: str) -> None:
    """Refuse a name of the tool's own that is so near to a vocabulary that this may be meant."""
    import difflib

    names = {name.lower(): name for name in sorted(_vocabularies())}
    for near in difflib.get_close_matches(namespace.lower(), names, n=1, cutoff=0.75):
        raise MissingContextMapError(
            f"{tool.name}: {namespace!r} is no vocabulary; did you mean namespace={names[near]!r}? "
            "If it is a name of the tool's own, take one that is not so near to that"
        )
