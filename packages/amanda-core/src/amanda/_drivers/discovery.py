"""Drivers are found here, by what installed packages announce.

A driver announces itself by an entry point in the group ``amanda.drivers`` whose value is a
:class:`~amanda.driving.Driver` object and whose name is the import name of its framework, which is
the backend's name and that of its vocabulary too. One that speaks another vocabulary says so
behind a colon: ``frame:words``. To tell this imports nothing: a driver is loaded once its framework
is imported. A driver that cannot be loaded is named in a warning and left out, and so is a package
whose metadata are broken.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from amanda._drivers.driver import Driver
from amanda._drivers.imports import ImportWatch, is_imported
from amanda._errors import AmandaWarning, MissingDriverError

if TYPE_CHECKING:  # they take long to import
    from importlib.metadata import EntryPoint

# Portable vocabularies that are known without a map, so that it can be said that one is missing.
PORTABLE = frozenset({"onnx"})
# Vocabularies by the namespaces of the system that was published in 2024: None for that of whatever
# backend is at hand.
NAMESPACES = {
    "amanda": None,
    "amanda/pytorch": "torch",
    "pytorch": "torch",
    "amanda/tensorflow": "tensorflow",
}
# Frameworks that have a driver, and how to install it.
_HINTS = {name: f"python -m pip install 'amanda-core[{name}]'" for name in ("torch", "tensorflow")}


@functools.cache
def warn_once(message: str) -> None:
    """Warn of what tools will not see, once in a process wherever that is found."""
    warnings.warn(message, AmandaWarning, stacklevel=3)


def entry_points_of(group: str) -> list[EntryPoint]:
    """List the entry points of a group; a package whose cannot be read is named in a warning."""
    from importlib.metadata import distributions, entry_points

    try:
        return list(entry_points(group=group))
    except Exception:  # from one package, which spoils the list of all
        found: list[EntryPoint] = []
    for distribution in distributions():
        try:
            found += distribution.entry_points.select(group=group)
        except Exception as error:
            package, why = distribution.name, f"{type(error).__name__}: {error}"
            warn_once(
                f"what the package {package} announces cannot be read, and is left out: {why}"
            )
    return found


class Announcement:
    """An announcement is what an installed package says of the driver in it.

    Attributes:
        framework: the import name of the framework, which is the backend's name too.
        vocabulary: the vocabulary that the driver speaks.
        module: the module that the driver is in.
        package: the name of the installed package, to ask pip for; that of the module if the
            metadata do not tell.
    """

    def __init__(self, entry: EntryPoint) -> None:
        self._entry = entry
        self.framework, _, vocabulary = entry.name.partition(":")
        self.vocabulary = vocabulary or self.framework
        self.module = entry.value.partition(":")[0].strip()
        distribution = getattr(entry, "dist", None)
        self.package = self.module if distribution is None else distribution.name

    def load(self) -> Driver:
        """Load the driver.

        Raises:
            MissingDriverError: from whatever keeps it from being loaded.
        """
        try:
            driver = self._entry.load()
            if not isinstance(driver, Driver):
                raise TypeError(f"{self._entry.value} is {type(driver).__name__}, not a Driver")
        except Exception as error:
            raise MissingDriverError(
                f"{self.framework} has no driver: {self.module} of {self.package} cannot be "
                f"loaded: {type(error).__name__}: {error}"
            ) from error
        return driver


def announced() -> list[Announcement]:
    """List the drivers that are installed, whether or not their framework is."""
    return [Announcement(entry) for entry in entry_points_of("amanda.drivers")]


@functools.cache
def _announced_at_first() -> dict[str, Announcement]:
    """List, by framework, the drivers that were installed when this was first asked."""
    return {a.framework: a for a in reversed(announced())}


@functools.cache
def modules_of_drivers() -> tuple[str, ...]:
    """List the modules, or packages, that the installed drivers are in."""
    return tuple(announcement.module for announcement in _announced_at_first().values())


def install_hint(framework: str) -> str | None:
    """Tell how to install a driver for a framework; None where nobody is known to make one."""
    return _HINTS.get(framework)


def frameworks() -> list[str]:
    """List the import names of the frameworks that have a driver, installed or not."""
    return list(dict.fromkeys([*_HINTS, *_announced_at_first()]))


def native_vocabularies() -> set[str]:
    """List the vocabularies that are some backend's own, whether or not its driver is loaded."""
    spoken = {announcement.vocabulary for announcement in _announced_at_first().values()}
    return spoken | {driver.vocabulary for driver in known_drivers()} | _HINTS.keys()


# By framework: the drivers that are loaded, why others could not be, which is not tried again, and
# a lock for each, since a thread that imports one may wait for another thread's import.
_drivers: dict[str, Driver] = {}
_failures: dict[str, str] = {}
_loading: dict[str, threading.RLock] = {}


def register_driver(driver: Driver) -> None:
    """Make a driver known that is not installed as a package of its own."""
    _drivers[driver.backend] = driver


def unregister_driver(driver: Driver) -> None:
    """Take back :func:`register_driver`."""
    _drivers.pop(driver.backend, None)  # it may have failed and be left out already


def known_drivers() -> list[Driver]:
    """List the drivers that are loaded already."""
    return list(dict.fromkeys(_drivers.values()))


def loaded_drivers() -> list[Driver]:
    """Load the drivers of the frameworks that are imported, and list all that are loaded.

    A framework without one is named in a warning, once.

    Raises:
        MissingDriverError: frameworks are imported, and none of them has a driver.
    """
    imported = [framework for framework in frameworks() if is_imported(framework)]
    missing = [why for framework in imported if (why := _load(framework)) is not None]
    if missing and not _drivers:
        raise MissingDriverError("; ".join(missing))
    for complaint in missing:
        warn_once(f"tools see nothing of it: {complaint}")
    return known_drivers()


def leave_out(driver: Driver, failure: Exception) -> None:
    """Do without a driver that failed where it must not, and say so.

    Raises:
        MissingDriverError: there is no other one.
    """
    for framework in [f for f, known in _drivers.items() if known is driver]:
        del _drivers[framework]
        complaint = f"{framework}'s driver failed: {type(failure).__name__}: {failure}"
        _failures[framework] = complaint
        if not _drivers:
            raise MissingDriverError(complaint) from failure
        warn_once(f"tools see nothing of it: {complaint}")


@contextlib.contextmanager
def framework_watch(then: Callable[[], None]) -> Iterator[None]:
    """Open a block in which the driver of a framework that is imported is loaded.

    Then ``then`` is called.
    """

    def imported(framework: str) -> None:
        try:  # the program's import must not fail for what it lacks
            if (complaint := _load(framework)) is None:
                then()
            else:
                warn_once(f"tools see nothing of it: {complaint}")
        except ImportError as missing:
            warn_once(str(missing))

    # listed ahead: to look them up imports modules, which must not come back here
    watch = ImportWatch(frameworks(), imported)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


def _load(framework: str) -> str | None:
    """Load a driver, unless it is loaded or being loaded: it imports its framework itself.

    A thread whose scope opens while another thread loads it waits; its tools would see nothing.

    Returns:
        why there is none; None if there is.
    """
    if framework in _drivers:
        return None
    announcement = _announced_at_first().get(framework)
    if announcement is None:
        return f"{framework} has no driver; {install_hint(framework)}"
    with _loading.setdefault(framework, threading.RLock()):
        loading = announcement.module in sys.modules and not is_imported(announcement.module)
        if framework not in _drivers and framework not in _failures and not loading:
            try:
                _drivers[framework] = announcement.load()
            except MissingDriverError as error:
                _failures[framework] = str(error)
    return _failures.get(framework)
