"""The names that a driver uses of its framework though the framework does not document them.

Such a name may be gone in another version. Each driver looks up all that it uses in one module of
its own when it is loaded, so that a version that lacks one is refused then, by name.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from typing import Any

from amanda._errors import IncompatibleVersionError


class PrivateNames:
    """Looks up private names of a framework.

    Args:
        package: the distribution that the driver comes in, e.g. ``amanda-frame``. The versions of
            the framework that it was tested with are those of its extra ``tested``.
        framework: the framework's import name, which its distribution has too.
    """

    def __init__(self, package: str, framework: str) -> None:
        self._package = package
        self._framework = framework

    def find(self, path: str, *members: str) -> Any:
        """What a dotted path leads to.

        Args:
            path: from the framework's import name on, through modules and their members.
            members: what is used of the value found, each a dotted path from there.

        Raises:
            IncompatibleVersionError: the framework has no such name, or the value no such member.
        """
        module, _, rest = path.partition(".")
        value = self._follow(importlib.import_module(module), module, rest)
        for member in members:
            self._follow(value, path, member)
        return value

    def _follow(self, value: Any, path: str, names: str) -> Any:
        for name in filter(None, names.split(".")):
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

        driver, framework = self._package, importlib.import_module(self._framework)
        with contextlib.suppress(PackageNotFoundError):  # it runs from a source tree
            driver = f"{driver} {version(driver)}"
        tested = versions_tested(self._package)
        return IncompatibleVersionError(
            f"{driver} does not work with {self._framework} {framework.__version__}, which has no "
            f"{path}; it was tested with {tested or 'other versions'}: "
            f"python -m pip install '{self._package}[tested]'"
        )


def versions_tested(package: str) -> str | None:
    """The versions of a framework that a driver's package declares by its extra ``tested``.

    They are told as pip understands them, e.g. ``frame<1.5,>=1.2``; None if it declares nothing.
    Only metadata are read.
    """
    from importlib.metadata import PackageNotFoundError, requires

    try:
        requirements = requires(package) or ()
    except PackageNotFoundError:
        return None
    for requirement in requirements:
        versions, _, marker = requirement.partition(";")
        if re.search(r"""extra\s*==\s*['"]tested['"]""", marker):
            return versions.strip()
    return None
