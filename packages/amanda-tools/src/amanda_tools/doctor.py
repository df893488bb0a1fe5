"""``amanda doctor`` tells what is installed, works together, or is missing; it loads all that."""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
from importlib.metadata import (
    PackageNotFoundError,
    packages_distributions,
    requires,
    version,
)
from typing import TYPE_CHECKING

import amanda
from amanda.driving import announced, entry_points_of, frameworks, install_hint, versions_tested
from rich.console import Group
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amanda.driving import Announcement
    from rich.console import RenderableType

_PACKAGES = ("amanda-core", "amanda-contextmap", "amanda-tools")


def examine() -> tuple[RenderableType, bool]:
    """Return a report, and whether all is well: tools see an installed framework's operators, and
    nothing that is installed fails.
    """
    table = Table.grid(padding=(0, 3))
    table.add_row("[bold]Python[/]", f"{platform.python_version()} at {sys.executable}")
    table.add_row("[bold]System[/]", platform.platform())
    drivers = announced()
    ours = [*_PACKAGES, *_driver_packages(), *(driver.package for driver in drivers)]
    for package in dict.fromkeys(ours):
        table.add_row(f"[bold]{package}[/]", _version(package) or "[dim]not installed[/]")
    usable: list[str] = []
    failures: list[str] = []
    missing: list[str] = []
    for framework in dict.fromkeys((*frameworks(), *(driver.framework for driver in drivers))):
        installed = _framework_version(framework)
        ours_for_it = [driver for driver in drivers if driver.framework == framework]
        if installed is None:
            state = "[dim]not installed[/]"
        elif not ours_for_it:
            missing.append(framework)
            state = f"{installed}, [yellow]without a driver[/]"
        else:
            (driver, *_) = ours_for_it
            failure = _failure(driver)
            (usable if failure is None else failures).append(framework)
            state = f"{installed}, driven by {driver.module}{_untested(driver, installed)}"
            if failure is not None:
                state = f"{installed}, [red]without a driver that works[/]: {escape(failure)}"
        table.add_row(f"[bold]{framework}[/]", state)
    for name, failure in _broken_maps():
        failures.append(name)
        table.add_row(f"[bold]context map {escape(name)}[/]", f"[red]fails[/]: {escape(failure)}")
    if not usable and not missing and not failures:
        missing = frameworks()
    return Group(table, "", *what_next(usable, missing, failures)), bool(usable) and not failures


def what_next(usable: list[str], missing: list[str], failures: list[str]) -> Iterator[str]:
    """Tell what to do next, in sentences."""
    hints = [
        f"{framework}: {escape(hint)}" for framework in missing if (hint := install_hint(framework))
    ]
    if failures:
        yield (
            f"Next: mend what fails above ({escape(', '.join(failures))}), by an upgrade or by "
            "removing it, and run `amanda doctor` again."
        )
    if usable and not failures:
        yield f"Next: run a script of your own that uses {' or '.join(map(escape, usable))}."
        yield "  amanda run train.py"
        yield "  amanda tools      # lists the tools that there are"
    if hints:
        what = "Also" if failures or usable else "Next"
        yield f"{what}: install a driver, by the line for the framework of your model."
        yield from (f"  for {hint}" for hint in hints)


def _failure(driver: Announcement) -> str | None:
    """Tell what keeps a driver from working; None if nothing does."""
    try:
        driver.load()
    except amanda.AmandaError as error:
        return str(error)
    return None


def _broken_maps() -> Iterator[tuple[str, str]]:
    """Give the context maps that cannot be loaded, and why."""
    for entry in entry_points_of("amanda.context_maps"):
        try:
            entry.load()
        except Exception as error:
            yield entry.name, f"{type(error).__name__}: {error}"


def _driver_packages() -> list[str]:
    """List the packages that the extras of amanda-core install."""
    try:
        required = requires("amanda-core") or ()
    except PackageNotFoundError:  # its sources are on the path, and nothing was installed
        return []
    names = [re.split(r"[^\w.-]", line)[0] for line in required]
    return [name for name in names if name.startswith("amanda-")]


def _untested(driver: Announcement, installed: str) -> str:
    """Warn where the framework is newer than any that the driver was tested with."""
    tested = versions_tested(driver.package)
    if tested is None or not is_newer(installed, tested):
        return ""
    return f", [yellow]newer than any tested ({escape(tested)})[/]"


def is_newer(version: str, requirement: str) -> bool:
    """Tell whether a version is newer than all that is required, as by ``frame<1.5,>=1.2``."""
    bound = re.search(r"<(=?)\s*([\d.]+)", requirement)
    if bound is None:
        return False
    last = _release(bound[2])
    release = _release(version)[: len(last)]
    return release > last or (release == last and not bound[1])


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: ``2.15.0+cpu`` is ``(2, 15, 0)``."""
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0]))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _framework_version(name: str) -> str | None:
    """Return the version of an importable module, which a package of another name may provide."""
    if importlib.util.find_spec(name) is None:
        return None
    for package in packages_distributions().get(name, ()):
        return _version(package)
    return "of unknown version"
