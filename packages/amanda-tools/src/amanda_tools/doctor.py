"""What is installed, what works together, and what is missing; imports no framework."""

from __future__ import annotations

import importlib.util
import platform
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import TYPE_CHECKING

from amanda.driver import available_drivers
from rich.console import Group
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import RenderableType

_PACKAGES = ("amanda-core", "amanda-tools", "amanda-torch", "amanda-tensorflow")
_FRAMEWORKS = ("torch", "tensorflow")


def examine() -> tuple[RenderableType, bool]:
    """A report, and whether tools can see the operators of a framework that is installed."""
    table = Table.grid(padding=(0, 3))
    table.add_row("[bold]Python[/]", f"{platform.python_version()} at {sys.executable}")
    table.add_row("[bold]System[/]", platform.platform())
    for package in _PACKAGES:
        table.add_row(f"[bold]{package}[/]", _version(package) or "[dim]not installed[/]")
    drivers = {entry.name: entry for entry in available_drivers()}
    usable, missing = [], []
    for framework in dict.fromkeys((*_FRAMEWORKS, *drivers)):
        installed = _framework_version(framework)
        driver = drivers.get(framework)
        if installed and driver:
            usable.append(framework)
            state = f"{installed}, driven by {driver.value.partition(':')[0]}"
        elif installed:
            missing.append(framework)
            state = f"{installed}, [yellow]without a driver[/]"
        else:
            state = "[dim]not installed[/]"
        table.add_row(f"[bold]{framework}[/]", state)
    advice = [_install(framework) for framework in missing]
    if not usable and not missing:
        advice = [_install(framework) for framework in _FRAMEWORKS]
    return Group(table, *advice), bool(usable)


def _install(framework: str) -> str:
    return f"\nfor {framework}: python -m pip install 'amanda-tools\\[{framework}]'"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _framework_version(name: str) -> str | None:
    """The version of an importable module, which may come in a package of another name."""
    if importlib.util.find_spec(name) is None:
        return None
    for package in packages_distributions().get(name, ()):
        return _version(package)
    return "of unknown version"
