"""Several operators are given one value as variables of their own."""

from __future__ import annotations

import weakref
from typing import Any


class Copies:
    """Copies are the variables that hold a value, as long as their operators have them."""

    def __init__(self) -> None:
        self._variables: list[weakref.ref[Any]] = []

    def of(self, variable: Any) -> Any:
        """Return a variable, which from now on holds the value too."""
        self._variables = [known for known in self._variables if known() is not None]
        self._variables.append(weakref.ref(variable))
        return variable

    def assign(self, value: Any) -> None:
        """Have all of them hold another value."""
        for known in self._variables:
            if (variable := known()) is not None:
                variable.assign(value)
