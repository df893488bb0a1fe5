"""Operators that torch's own Python functions run as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def binding_of(name: str) -> Callable[..., Any] | None:
    """torch's Python function for an overload, None if it is not known to be the same."""
    return None
