"""The audience of an operator: which of the active tools look at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from amanda._discovery import warn_once
from amanda._driver import Driver
from amanda._errors import UnsupportedError
from amanda._globs import may_select_within, selects, selects_any
from amanda._operator import Operator
from amanda._tool import Subscription, Tool, View
from amanda._vocabulary import ContextMap, Selection, Translation, context_map, select


class Audience:
    """The subscriptions of the active tools, as they look at the operators of one backend.

    Attributes:
        context_maps: those to the vocabularies that tools speak and the backend does not.
        selections: what each subscription looks at.
        wanted: types of forward operators that must be intercepted; None for all.
        wants_modules: whether any of them looks at modules.
    """

    def __init__(self, driver: Driver, subscriptions: Sequence[Subscription]) -> None:
        spoken = {s.tool.vocabulary for s in subscriptions} - {None, driver.vocabulary}
        self.context_maps: Mapping[str, ContextMap] = {
            vocabulary: context_map(driver.vocabulary, vocabulary)
            for vocabulary in sorted(filter(None, spoken))
        }
        self.selections = [
            select(s, driver)
            if s.view is View.MODULE
            or (translating := self.context_maps.get(s.tool.vocabulary or "")) is None
            else translating.select(s, driver)
            for s in subscriptions
        ]
        known = [s.forward | s.near for s in self.selections if s.forward is not None]
        every = len(known) < len(self.selections)
        self.wanted = None if every else frozenset[str]().union(*known)
        self.wants_modules = any(s.view is View.MODULE for s in self.selections)

    def looking(
        self, view: View, operator: Operator, translations: Mapping[str, Translation]
    ) -> list[Selection]:
        """Those that look in this way at an operator that has these translations."""
        there = (s for s in self.selections if s.view is view and _may_look(s, operator))
        return [s for s in there if _wants(s, translations)]

    def wants_module(self, type: str, path: str) -> bool:
        """Whether any of them looks at a module of a class at a path."""
        return any(_is_of(s, type, path) for s in self.selections if s.view is View.MODULE)

    def without(self, type: str) -> tuple[Subscription, ...]:
        """The subscriptions of all tools but those that want operators of a type."""
        satisfied = {s.subscription.tool for s in self.selections if _selects(s, type)}
        every = (s.subscription for s in self.selections)
        return tuple(s for s in every if s.tool not in satisfied)

    def inside(
        self, operator: Operator, translations: Mapping[str, Translation]
    ) -> tuple[Subscription, ...]:
        """The subscriptions, of all tools but those that want an operator, to what runs inside it.

        That is in its scope, or in one within that.
        """
        satisfied = {
            s.subscription.tool
            for s in self.selections
            if operator.only_in in (None, s.subscription.tool.vocabulary)
            and _selects(s, operator.type)
            and _is_in(s, operator.scope)
            and _wants(s, translations)
        }
        within = (s.subscription for s in self.selections if _may_be_within(s, operator.scope))
        return tuple(s for s in within if s.tool not in satisfied)

    def looks_within(self, scope: str) -> bool:
        """Whether any of the subscriptions may want an operator in a scope, or in one within it."""
        return any(_may_be_within(s, scope) for s in self.selections)


def check_sees_modules(tool: Tool, drivers: Sequence[Driver]) -> None:
    """Say of which backends a tool that looks at modules sees none.

    Raises:
        UnsupportedError: none of them has modules.
    """
    if not any(s.view is View.MODULE for s in tool.subscriptions):
        return
    without = [driver.backend for driver in drivers if not driver.has_modules]
    reason = "has no modules that tools can see; register with add_inst_for_op instead"
    if without and len(without) == len(drivers):
        raise UnsupportedError(f"{tool.name}: add_inst_for_module: {without[0]} {reason}")
    for backend in without:
        warn_once(f"{tool.name} sees no modules of it: {backend} {reason}")


def _is_of(selection: Selection, type: str, path: str) -> bool:
    """Whether a selection of modules is for those of a class at a path."""
    globs = selection.subscription.scopes
    of_class = selection.types is None or type in selection.types
    return of_class and (globs is None or any(fnmatchcase(path, glob) for glob in globs))


def _selects(selection: Selection, type: str) -> bool:
    return selection.forward is None or type in selection.forward


def _is_in(selection: Selection, scope: str) -> bool:
    """Whether a selection is for the operators of a scope."""
    return selects_any(selection.subscription.scopes, scope)


def _may_be_within(selection: Selection, scope: str) -> bool:
    """Whether a selection may be for operators of a scope or of one within it."""
    globs = selection.subscription.scopes
    return globs is None or any(selects(g, scope) or may_select_within(g, scope) for g in globs)


def _wants(selection: Selection, translations: Mapping[str, Translation]) -> bool:
    """Whether an operator is one that is wanted in the vocabulary of the tool."""
    translation = translations.get(selection.subscription.tool.vocabulary or "")
    if translation is None or selection.types is None:
        return True
    return not selection.types.isdisjoint(translation.types)


def _may_look(selection: Selection, operator: Operator) -> bool:
    """Whether an operator is there for a tool: it may be a module, or of a composite."""
    subscription = selection.subscription
    if operator.is_module or selection.view is View.MODULE:
        seen = operator.is_module and selection.view is View.MODULE
        return seen and _is_of(selection, operator.type, operator.scope)
    vocabulary = subscription.tool.vocabulary
    if operator.only_in not in (None, vocabulary) or vocabulary in operator.part_in:
        return False
    if operator.opt_in and selection.types is None and not subscription.opt_in:
        return False
    return _selects(selection, operator.type) and _is_in(selection, operator.scope)
