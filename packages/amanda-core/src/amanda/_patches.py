"""What a driver changes in its framework, and only while some thread needs it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    Patch = tuple[Any, str, Any]

_INHERITED = object()  # stands for an attribute that a class has from another one


class Patches:
    """Attributes of a framework that have other values while anyone holds them.

    Args:
        patches: gives for each attribute its owner, its name and its value, when they are needed.
    """

    def __init__(self, patches: Callable[[], Iterable[Patch]]) -> None:
        self._patches = patches
        self._holders: set[Hashable] = set()
        self._originals: list[Patch] = []
        self._lock = threading.RLock()

    def hold(self, held: bool, holder: Hashable = None) -> None:
        """Have them in place for a holder, which is the current thread unless it is given."""
        holder = threading.get_ident() if holder is None else holder
        with self._lock:
            before = bool(self._holders)
            (self._holders.add if held else self._holders.discard)(holder)
            if self._holders and not before:
                self.install()
            elif before and not self._holders:
                self.remove()

    def install(self) -> None:
        """Put them in place."""
        for owner, name, value in self._patches():
            self._originals.append((owner, name, vars(owner).get(name, _INHERITED)))
            setattr(owner, name, value)

    def remove(self) -> None:
        """Restore what was there before."""
        while self._originals:
            owner, name, original = self._originals.pop()
            if original is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
