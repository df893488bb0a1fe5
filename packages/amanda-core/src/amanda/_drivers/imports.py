"""Whoever waits for a module that a program imports is told of it here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # they take long to import
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def is_imported(name: str) -> bool:
    """Tell whether a module has been imported, all of it."""
    module = sys.modules.get(name)
    return module is not None and not getattr(module.__spec__, "_initializing", False)


class ImportWatch:
    """An import watch is told of modules right after they were executed.

    Args:
        names: those of the modules.
        then: called with the name of one, in the thread that imports it.
    """

    def __init__(self, names: Collection[str], then: Callable[[str], None]) -> None:
        self._names = names
        self._told = then

    def start(self) -> None:
        """Watch from now on."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Watch no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module as it would be found, and have ``then`` called after its execution."""
        if name not in self._names:
            return None
        finders = list(sys.meta_path)  # from which another thread may take this one
        behind = finders[finders.index(self) + 1 :] if self in finders else finders
        found = (finder.find_spec(name, path, target) for finder in behind)
        spec: ModuleSpec | None = next((spec for spec in found if spec is not None), None)
        if spec is None or spec.loader is None:
            return spec
        loader, execute = spec.loader, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            execute(module)
            self._told(name)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
