"""Outside of modules, one place that is given other settings or parameters is another operator.

There no call of a model counts turns, and what a loop does with ``x.softmax(d)`` for several
``d``, or C++ with ``x[0, 1:, ::2]``, has one address. An analysis is to see the settings that its
operator runs with. A place has only so many operators: where a number grows with each step, those
that follow are one, and the settings that differ among them are shown to nobody.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from amanda import ValueUnavailableError
from amanda.driving import Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from amanda import Operator
    from amanda.driving import ByOperator

    Settings = tuple[object, ...]

# How many operators of a place are told apart before what differs among them is no longer.
APART = 8

_DIFFERS = object()
_PLAIN = frozenset((int, str, type(None), torch.dtype))
_NUMBERS = frozenset((bool, float, complex))  # equal to integers, but another setting


def setting(value: Any) -> object:
    """Return what of an argument tells operators apart; None for what is no plain value."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind in _NUMBERS:
        return kind, value
    if kind is list or kind is tuple:
        return tuple([setting(element) for element in value])
    return None


class Place:
    """A place lies outside of modules, and has its operators by their settings and parameters.

    Attributes:
        only: the operator that it has whatever it is given, if it is an update of an optimizer,
            which has other numbers in each step and is still the same.

    Args:
        unsettled: keeps for operators the names of those settings that differ among executions.
    """

    def __init__(self, unsettled: ByOperator[frozenset[str]]) -> None:
        self._unsettled = unsettled
        self._found: dict[Settings, Operator] = {}
        self._apart: list[Settings] = []  # by which operators are told apart now
        self._differing: frozenset[int] = frozenset()
        # By a parameter's identity: it, and the place for those operators that take it. Weak keys
        # of torch take 3 us to look up.
        self._taking: dict[int, tuple[Reference[torch.Tensor], Place]] = {}
        self.only: Operator | None = None

    def taking(self, parameter: torch.Tensor) -> Place | None:
        """Return the place for those operators that take a parameter, None if it was never met."""
        known = self._taking.get(id(parameter))
        return None if known is None or known[0]() is not parameter else known[1]

    def add_taking(self, parameter: torch.Tensor) -> Place:
        """Add the place for those operators that take a parameter, as long as that lives."""
        place = self.taking(parameter)
        if place is None:  # else another thread has come first
            place, key = Place(self._unsettled), id(parameter)
            gone = functools.partial(_forget, weakref.ref(self), key)
            self._taking[key] = Reference(parameter, gone), place
        return place

    def forget(self, key: int) -> None:
        """Forget the operators that take a parameter which is gone."""
        self._taking.pop(key, None)

    def get(self, settings: Settings) -> Operator | None:
        """Return the operator with these settings, None if it has not been met."""
        found = self._found.get(settings)
        if found is None and self._differing:
            found = self._found.get(self._masked(settings))
        return found

    def add(
        self, settings: Settings, names: Sequence[str], new: Callable[[], Operator]
    ) -> Operator:
        """Add the operator with these settings, a new one if need be.

        Args:
            settings: what it is given.
            names: of these settings.
            new: makes an operator.
        """
        found = self.get(settings)
        if found is not None:  # another thread has come first
            return found
        operator = new()
        if len(self._apart) >= APART:
            values = zip(*self._apart, self._masked(settings), strict=True)
            self._differing |= {i for i, one in enumerate(values) if len(set(one)) > 1}
            self._apart.clear()
        settings = self._masked(settings)
        self._apart.append(settings)
        self._found[settings] = operator
        if self._differing:
            self._unsettled.keep(operator, frozenset(names[i] for i in self._differing))
        return operator

    def _masked(self, settings: Settings) -> Settings:
        return tuple(_DIFFERS if i in self._differing else s for i, s in enumerate(settings))


def _forget(place: weakref.ref[Place], key: int, _: object) -> None:
    if (found := place()) is not None:
        found.forget(key)


class _Attributes(Mapping[str, Any]):
    """These are attributes of an operator of which some differ from one execution to the next.

    Their names are there, and no way to read them, one by one or all at once, gives a value.
    """

    def __init__(self, attrs: dict[str, Any], differing: frozenset[str], id: str) -> None:
        self._attrs = attrs
        self._differing = differing
        self._id = id

    def __getitem__(self, name: str) -> Any:
        if name in self._differing and name in self._attrs:
            raise ValueUnavailableError(
                f"{self._id}: {name!r} differs from one execution to the next at one place "
                f"outside of modules, where {APART} settings are told apart; run it within a "
                "module, whose calls tell the turns of a loop apart"
            )
        return self._attrs[name]

    def __contains__(self, name: object) -> bool:
        return name in self._attrs

    def __iter__(self) -> Iterator[str]:
        return iter(self._attrs)

    def __len__(self) -> int:
        return len(self._attrs)


def attributes(
    attrs: dict[str, Any], operator: Operator, differing: frozenset[str] | None
) -> Mapping[str, Any]:
    """Return the attributes of an operator, without the values of those that differ."""
    return attrs if differing is None else _Attributes(attrs, differing, operator.id)
