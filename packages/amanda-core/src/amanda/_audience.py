"""The audience of an operator: which of the tools in force look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda._vocabulary import (
    composing,
    forward_types,
    misspelt,
    native_view,
    selected,
    shows,
    speaks_natively,
    wants_translated,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from amanda._context_map import Translation
    from amanda._driver import Driver
    from amanda._operator import Operator
    from amanda._tool import Subscription, View


class Audience:
    """The subscriptions of the tools in force, as they look at the operators of one backend.

    Attributes:
        wanted: types of forward operators that must be intercepted; None for all.
        vocabularies: those that tools speak and the backend does not.
        composing: the context maps that find composites in the backend's graphs, by vocabulary.
    """

    def __init__(self, driver: Driver, subscriptions: Sequence[Subscription]) -> None:
        self._driver = driver
        self._subscriptions = subscriptions
        self._matching: dict[tuple[Any, ...], tuple[Subscription, ...]] = {}
        self.wanted = self._wanted()
        self.vocabularies = {
            s.tool.vocabulary
            for s in subscriptions
            if s.tool.vocabulary is not None and not speaks_natively(s, driver)
        }
        self.composing = composing(self.vocabularies, driver)

    def matching(
        self, view: View, operator: Operator, translations: Mapping[str, Translation]
    ) -> Sequence[Subscription]:
        """The subscriptions that look at an operator in this way."""
        key = (view, operator.type, operator.opt_in, operator.only_in, operator.part_in)
        if key not in self._matching:
            self._matching[key] = tuple(
                s
                for s in self.wanting(operator.type)
                if native_view(s, self._driver) is view
                and shows(operator, s.tool)
                and not (operator.opt_in and selected(s, self._driver) is None and not s.opt_in)
            )
        return self._translated(self._matching[key], translations)

    def wanting(
        self, type: str, translations: Mapping[str, Translation] | None = None
    ) -> Sequence[Subscription]:
        """The subscriptions that want operators of a type, or one that has these translations."""
        wanting = [
            s
            for s in self._subscriptions
            if (ops := forward_types(s, self._driver)) is None or type in ops
        ]
        return self._translated(wanting, translations or {})

    def without(self, satisfied: Iterable[Subscription]) -> tuple[Subscription, ...]:
        """The subscriptions of all tools but those that have one of ``satisfied``."""
        tools = {s.tool for s in satisfied}
        return tuple(s for s in self._subscriptions if s.tool not in tools)

    def _wanted(self) -> frozenset[str] | None:
        types: set[str] = set()
        for subscription in self._subscriptions:
            ops = forward_types(subscription, self._driver)
            if ops is None:
                return None
            types |= ops
            types |= misspelt(subscription, self._driver)
        return frozenset(types)

    def _translated(
        self, subscriptions: Sequence[Subscription], translations: Mapping[str, Translation]
    ) -> Sequence[Subscription]:
        if not translations:
            return subscriptions
        return [s for s in subscriptions if wants_translated(s, self._driver, translations)]
