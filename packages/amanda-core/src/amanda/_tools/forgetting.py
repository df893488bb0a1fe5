"""Engines keep what tools decided; they are told here to forget it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amanda._plans.engine import Engine

engines: weakref.WeakSet[Engine] = weakref.WeakSet()
"""All that there are; each one adds itself."""


def clear_cache() -> None:
    """Forget every decision of every active tool: each operator is analyzed anew."""
    for engine in list(engines):
        engine.forget()
