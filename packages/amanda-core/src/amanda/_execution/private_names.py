"""A driver looks up here the names of its framework that this does not document.

Such a name may be gone in another version. Each driver looks up all that it uses in one module of
its own when it is loaded, so that a version that lacks one is refused then, by name.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from dataclasses import dataclass
from typing import Any

from amanda._errors import IncompatibleVersionError


@dataclass
class PrivateNames:
    """A driver looks up the private names of its framework by this.

    Attributes:
        package: the distribution that the driver comes in, e.g. ``amanda-frame``. The versions of
            the framework that it was tested with are those of its extra ``tested``.
        framework: the framework's import name, which its distribution has too.
    """

    package: str
    framework: str

    def find(self, path: str, *members: str) -> Any:
        """Import or get what a dotted path leads to.

        Args:
            path: from a module's import name on, through modules and their members.
            members: what is used of the value found, each a dotted path from there.

        Raises:
            IncompatibleVersionError: the framework has no such name, or the value no such member.
        """
        for member in members:
            self.find(f"{path}.{member}")
        path, *names = path.split(".")
        value: Any = importlib.import_module(path)
        for name in names:
            path = f"{path}.{name}"
            try:
                value = getattr(value, name)
            except AttributeError:
                try:
                    value = importlib.import_module(path)
                except ImportError as error:
                    raise self._incompatible(path) from error
        return value

    def _incompatible(self, path: str) -> IncompatibleVersionError:
        from importlib.metadata import PackageNotFoundError, version

        driver, framework = self.package, importlib.import_module(self.framework)
        with contextlib.suppress(PackageNotFoundError):  # it runs from a source tree
            driver = f"{driver} {version(driver)}"
        tested = versions_tested(self.package) or "other versions"
        return IncompatibleVersionError(
            f"{driver} does not work with {self.framework} {framework.__version__}, which has no "
            f"{path}; it was tested with {tested}: python -m pip install '{self.package}[tested]'"
        )


def versions_tested(package: str) -> str | None:
    """Tell the versions of a framework that a driver's package declares by its extra ``tested``.

    They are told as pip understands them, e.g. ``frame<1.5,>=1.2``; None if it declares nothing.
    Only metadata are read.
    """
    from importlib.metadata import PackageNotFoundError, requires

    try:
        required = [requirement.partition(";") for requirement in requires(package) or ()]
    except PackageNotFoundError:
        return None
    tested = re.compile(r"""extra\s*==\s*['"]tested['"]""")
    return next((versions.strip() for versions, _, extra in required if tested.search(extra)), None)
