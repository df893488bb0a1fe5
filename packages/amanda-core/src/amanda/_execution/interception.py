"""Interception knows under which tools a thread runs, and what it changes in a framework."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from amanda._drivers.imports import ImportWatch, is_imported
from amanda._plans.engine import Engine


class OnImport(NamedTuple):
    """These are patches of a module that a program may import after the tools became active.

    Attributes:
        module: its full name.
        patches: gives them, once the module has been imported.
    """

    module: str
    patches: Callable[[Any], Iterable[tuple[Any, str, Any]]]


Patch: TypeAlias = tuple[Any, str, Any] | OnImport
_INHERITED = object()  # stands for an attribute that a class has from another one


class ActiveEngine(threading.local):
    """An active engine is what each of a driver's threads runs under, unless the code of tools
    does.

    Attributes:
        engine: that of the current thread, which is to be told of what runs; None for nobody.

    Args:
        changed: called in a thread with its ``engine`` whenever that may be another one.
        patches: what is in place while any thread has an engine.
    """

    def __init__(
        self,
        changed: Callable[[Engine | None], Any] = lambda engine: None,
        patches: Patches | None = None,
    ) -> None:
        self._changed = changed
        self._patches = patches
        self._active: Engine | None = None
        self._paused = False
        self.engine: Engine | None = None

    def put(self, engine: Engine | None, paused: bool = False) -> None:
        """Make an engine active, seen by nobody yet if the code of tools is at work."""
        self._active, self._paused = engine, paused
        if self._patches is not None:
            self._patches.hold(engine is not None)
        self.refresh()

    def suspend(self) -> bool:
        """Make none active, for :meth:`amanda.Driver.suspend`.

        Returns:
            whether this driver runs code of tools, which to say when an engine is :meth:`put`
            again. It does not where it is the routine of another driver that opens a scope.
        """
        paused = self._paused
        self.put(None)
        return paused

    def refresh(self) -> None:
        """Have ``changed`` called."""
        self.engine = None if self._paused else self._active
        self._changed(self.engine)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Run the code of tools, or something on their behalf."""
        before, self._paused = self._paused, True
        self.refresh()
        try:
            yield
        finally:
            self._paused = before
            self.refresh()


class Patches:
    """Patches give attributes of a framework other values while anyone holds them.

    Args:
        patches: gives for each attribute its owner, its name and its value, when they are needed;
            and for modules that may be imported later, what is to be patched then.
    """

    def __init__(self, patches: Callable[[], Iterable[Patch]]) -> None:
        self._patches = patches
        self._holders: set[Hashable] = set()
        self._originals: list[tuple[Any, str, Any]] = []
        self._awaited: dict[str, list[OnImport]] = {}
        self._imports = ImportWatch(self._awaited, self._imported)
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

    def add(self, patches: Iterable[Patch]) -> None:
        """Put others in place too, as long as these are held; nothing if nobody holds them."""
        with self._lock:
            if self._holders:
                self._put(patches)

    def install(self) -> None:
        """Put them in place."""
        self._put(self._patches())

    def _put(self, patches: Iterable[Patch]) -> None:
        for patch in patches:
            if not isinstance(patch, OnImport):
                owner, name, value = patch
                self._originals.append((owner, name, vars(owner).get(name, _INHERITED)))
                setattr(owner, name, value)
            elif is_imported(patch.module):
                self._put(patch.patches(sys.modules[patch.module]))
            else:
                self._awaited.setdefault(patch.module, []).append(patch)
        if self._awaited:
            self._imports.start()

    def _imported(self, module: str) -> None:
        """Put those in place that waited for a module; none if they are held no longer."""
        with self._lock:
            for patch in self._awaited.pop(module, ()):
                self._put(patch.patches(sys.modules[module]))
            if not self._awaited:
                self._imports.stop()

    def remove(self) -> None:
        """Restore what was there before."""
        self._awaited.clear()
        self._imports.stop()
        while self._originals:
            owner, name, original = self._originals.pop()
            if original is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
