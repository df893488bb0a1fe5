"""What installed packages announce; one whose metadata are broken takes nothing from the others."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from amanda._errors import AmandaWarning

if TYPE_CHECKING:  # it takes long to import
    from importlib.metadata import EntryPoint

_warned: set[str] = set()


def entry_points_of(group: str) -> list[EntryPoint]:
    """The entry points of a group; packages whose cannot be read are named in a warning."""
    from importlib.metadata import distributions, entry_points

    try:
        return list(entry_points(group=group))
    except Exception:  # from one package, which spoils the list of all
        found: list[EntryPoint] = []
        for distribution in distributions():
            try:
                found += distribution.entry_points.select(group=group)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                warn_once(
                    f"what the package {distribution.name} announces cannot be read, and is left "
                    f"out: {why}"
                )
        return found


def warn_once(message: str) -> None:
    """Warn of what tools will not see, once in a process wherever that is found."""
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, AmandaWarning, stacklevel=3)
