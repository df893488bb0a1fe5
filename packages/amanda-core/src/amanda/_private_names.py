"""The names that a driver uses of its framework though the framework does not document them.

Such a name may be gone in another version. Each driver looks up all that it uses in one module of
its own when it is loaded, so that a version that lacks one is refused then, by name.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from typing import Any, NamedTuple

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
        module, *names = path.split(".")
        value: Any = importlib.import_module(module)
        for name in names:
            module = f"{module}.{name}"
            value = self._member(value, name, module)
        for member in members:
            found, where = value, path
            for name in member.split("."):
                where = f"{where}.{name}"
                found = self._member(found, name, where)
        return value

    def _member(self, value: Any, name: str, path: str) -> Any:
        try:
            return getattr(value, name)
        except AttributeError:
            pass
        try:
            return importlib.import_module(path)
        except ImportError as error:
            raise self._incompatible(path) from error

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


class VersionRange(NamedTuple):
    """The versions of a framework that a driver was tested with.

    Attributes:
        requirement: as pip understands it, e.g. ``frame<1.5,>=1.2``.
    """

    requirement: str

    def __str__(self) -> str:
        return self.requirement

    def ends_before(self, version: str) -> bool:
        """Whether a version of the framework is newer than all of these."""
        bound = re.search(r"<(=?)\s*([\d.]+)", self.requirement)
        if bound is None:
            return False
        last = _release(bound[2])
        release = _release(version)[: len(last)]
        return release > last or (release == last and not bound[1])


def versions_tested(package: str) -> VersionRange | None:
    """What a driver's package declares by its extra ``tested``; None if it declares nothing.

    Only metadata are read, as in ``tested = ["frame>=1.2,<1.5"]``.
    """
    from importlib.metadata import PackageNotFoundError, requires

    try:
        requirements = requires(package) or ()
    except PackageNotFoundError:
        return None
    for requirement in requirements:
        versions, _, marker = requirement.partition(";")
        if re.search(r"""extra\s*==\s*['"]tested['"]""", marker):
            return VersionRange(versions.strip())
    return None


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a version: ``2.15.0+cpu`` is ``(2, 15, 0)``."""
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0]))
