"""What makes one framework's execution mode obey the tools, and how drivers are found.

A driver reports to an :class:`amanda.engine.Engine` what runs, and carries out the plans that it
answers with. Drivers announce themselves by an entry point in the group ``amanda.drivers`` whose
name is the import name of their framework and whose value is a :class:`Driver` object; they are
loaded only once that framework is imported.
"""

from __future__ import annotations

import abc
import sys
import threading
import warnings

from amanda.errors import MissingDriverError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from importlib.metadata import EntryPoint
    from types import ModuleType
    from typing import Any

    from amanda.action import Action
    from amanda.analysis import Execution
    from amanda.context_map import Layout
    from amanda.engine import Engine
    from amanda.operator import Operator

# Frameworks that have a driver, and the packages in which it comes.
_PACKAGES = {"torch": "amanda-core[torch]", "tensorflow": "amanda-core[tensorflow]"}


class Driver(abc.ABC):
    """Base class of drivers.

    Attributes:
        backend: the backend's name, e.g. ``torch``.
        vocabulary: the names it speaks for operators, inputs and attributes.
        xp: array namespace for its tensors.
    """

    backend: str
    vocabulary: str

    @property
    @abc.abstractmethod
    def xp(self) -> Any:
        """Array namespace (Python array API) for the backend's tensors."""

    @abc.abstractmethod
    def activate(self, engine: Engine | None) -> None:
        """From now on this thread runs under ``engine``; None for no tools at all."""

    @abc.abstractmethod
    def value(self, tensor: Any) -> Any:
        """A tensor as a NumPy array.

        Raises:
            ValueUnavailableError: it is known only at execution.
        """

    @abc.abstractmethod
    def variable(self, initial: Any, execution: Execution) -> Any:
        """State that routines may read and that a tool may ``.assign()``."""

    @abc.abstractmethod
    def refusal(self, original: Any, substitute: Any) -> str | None:
        """Why ``substitute`` cannot stand for ``original``; None if it can.

        ``original`` is None where there is nothing to compare with: there was no gradient, or
        the routine is differentiable, and may return any tensor.
        """

    def is_parameter(self, tensor: Any) -> bool:
        """Whether a tensor is a parameter of the model, or a read, cast or view of one."""
        return False

    def turned(self, tensor: Any, layout: Layout) -> Any:
        """A tensor as an analysis routine sees it that speaks a vocabulary of another layout."""
        return layout.to_canonical(tensor, self.xp)

    def check_action(self, operator: Operator, action: Action) -> None:  # noqa: B027
        """Raise :class:`UnsupportedError` for an action that this backend cannot carry out."""

    def forward_types(self, types: frozenset[str]) -> frozenset[str] | None:
        """Types of the forward operators to intercept for a tool that wants the backward of
        ``types``, which may name forward or backward operators; None for all of them."""
        return None


_drivers: dict[str, Driver] = {}


def register_driver(driver: Driver) -> None:
    """Make a driver known that is not installed as a package of its own."""
    _drivers[driver.backend] = driver


def unregister_driver(driver: Driver) -> None:
    """Take back :func:`register_driver`."""
    del _drivers[driver.backend]


def known_drivers() -> list[Driver]:
    """Drivers that are loaded already."""
    return list(_drivers.values())


def available_drivers() -> Sequence[EntryPoint]:
    """Entry points of the installed drivers, whether or not their framework is imported."""
    from importlib.metadata import entry_points

    return tuple(entry_points(group="amanda.drivers"))


def loaded_drivers() -> list[Driver]:
    """Drivers of the frameworks that are imported.

    Raises:
        MissingDriverError: frameworks are imported, and none of them has a driver installed.
    """
    missing = []
    entries = {entry.name: entry for entry in _entries()}
    for framework in {**_PACKAGES, **entries}:
        if framework in _drivers or not _imported(framework):
            continue
        if framework in entries:
            _load(entries[framework])
        else:
            missing.append(framework)
    if missing and not _drivers:
        raise MissingDriverError("; ".join(_missing(framework) for framework in missing))
    return known_drivers()


class ImportWatch:
    """Calls ``then`` when a framework with a driver has been imported; a context manager."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def __enter__(self) -> None:
        # listed now: to look them up imports modules, which must not come back here
        self._installed = {entry.name: entry for entry in _entries()}
        sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the framework's own module, and have ``then`` called after its execution."""
        if name not in _PACKAGES and name not in self._installed:
            return None
        spec = None
        for finder in sys.meta_path:
            if isinstance(finder, ImportWatch):  # that of an outer scope, or of another thread
                continue
            if (spec := finder.find_spec(name, path, target)) is not None:
                break
        if spec is None or spec.loader is None:
            return spec
        loader, execute = spec.loader, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            execute(module)
            if name in self._installed:
                _load(self._installed[name])
                self._then()
            else:
                warnings.warn(f"tools see nothing of it: {_missing(name)}", stacklevel=2)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_entry_cache: list[EntryPoint] | None = None


def _entries() -> Sequence[EntryPoint]:
    global _entry_cache
    if _entry_cache is None:
        _entry_cache = list(available_drivers())
    return _entry_cache


# One for each framework, since a thread that imports one may wait for another thread's import.
_loading: dict[str, threading.RLock] = {}


def _load(entry: EntryPoint) -> None:
    """Load a driver, unless it is loaded or being loaded: it imports its framework itself.

    A thread whose scope opens while another thread loads it waits; its tools would see nothing.
    """
    with _loading.setdefault(entry.name, threading.RLock()):
        loading = entry.module in sys.modules and not _imported(entry.module)
        if entry.name not in _drivers and not loading:
            _drivers[entry.name] = entry.load()


def _imported(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and not getattr(module.__spec__, "_initializing", False)


def _missing(framework: str) -> str:
    return f"{framework} has no driver; python -m pip install '{_PACKAGES[framework]}'"
