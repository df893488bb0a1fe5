"""The audience of an operator: which of the active tools look at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amanda._driver import Driver
from amanda._operator import Operator
from amanda._tool import Subscription, View
from amanda._vocabulary import ContextMap, Selection, Translation, context_map, select


class Audience:
    """The subscriptions of the active tools, as they look at the operators of one backend.

    Attributes:
        context_maps: those to the vocabularies that tools speak and the backend does not.
        selections: what each subscription looks at.
        wanted: types of forward operators that must be intercepted; None for all.
    """

    def __init__(self, driver: Driver, subscriptions: Sequence[Subscription]) -> None:
        spoken = {s.tool.vocabulary for s in subscriptions} - {None, driver.vocabulary}
        self.context_maps: Mapping[str, ContextMap] = {
            vocabulary: context_map(driver.vocabulary, vocabulary)
            for vocabulary in sorted(filter(None, spoken))
        }
        self.selections = [
            select(s, driver)
            if (translating := self.context_maps.get(s.tool.vocabulary or "")) is None
            else translating.select(s, driver)
            for s in subscriptions
        ]
        known = [s.forward | s.near for s in self.selections if s.forward is not None]
        every = len(known) < len(self.selections)
        self.wanted = None if every else frozenset[str]().union(*known)

    def looking(
        self, view: View, operator: Operator, translations: Mapping[str, Translation]
    ) -> list[Selection]:
        """Those that look in this way at an operator that has these translations."""
        there = (s for s in self.selections if s.view is view and _may_look(s, operator))
        return [s for s in there if _wants(s, translations)]

    def without(
        self, type: str, translations: Mapping[str, Translation], only_in: str | None = None
    ) -> tuple[Subscription, ...]:
        """The subscriptions of all tools but those that want operators of a type.

        Args:
            type: their type.
            translations: what they are in other vocabularies.
            only_in: the one vocabulary whose tools see them; None for all.
        """
        satisfied = {
            s.subscription.tool
            for s in self.selections
            if only_in in (None, s.subscription.tool.vocabulary)
            and _selects(s, type)
            and _wants(s, translations)
        }
        every = (s.subscription for s in self.selections)
        return tuple(s for s in every if s.tool not in satisfied)


def _selects(selection: Selection, type: str) -> bool:
    return selection.forward is None or type in selection.forward


def _wants(selection: Selection, translations: Mapping[str, Translation]) -> bool:
    """Whether an operator is one that is wanted in the vocabulary of the tool."""
    translation = translations.get(selection.subscription.tool.vocabulary or "")
    if translation is None or selection.types is None:
        return True
    return not selection.types.isdisjoint(translation.types)


def _may_look(selection: Selection, operator: Operator) -> bool:
    """Whether an operator is there for a tool: it may be a composite, or a part of one."""
    subscription = selection.subscription
    vocabulary = subscription.tool.vocabulary
    if operator.only_in not in (None, vocabulary) or vocabulary in operator.part_in:
        return False
    if operator.opt_in and selection.types is None and not subscription.opt_in:
        return False
    return _selects(selection, operator.type)
