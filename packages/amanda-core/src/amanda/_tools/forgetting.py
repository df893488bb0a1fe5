"""Engines keep what tools decided; they are told here to forget it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amanda._plans.engine import Engine
    from amanda._tools.tool import Tool

engines: weakref.WeakSet[Engine] = weakref.WeakSet()
"""All that there are; each one adds itself."""


def invalidate(tool: Tool) -> None:
    """Forget what a tool, and the tools that depend on it, decided."""
    for engine in list(engines):
        stale = {tool}
        for other in engine.active.owners:  # dependencies come first
            if not stale.isdisjoint(other.direct_dependencies()):
                stale.add(other)
        engine.forget(stale)


def clear_cache() -> None:
    """Forget every decision of every active tool: each operator is analyzed anew."""
    for engine in list(engines):
        engine.forget()
