"""Selections tell which operators of a backend a subscription of a tool looks at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from amanda._drivers.driver import Driver
from amanda._operators.names import may_select_within, selects
from amanda._operators.operator import Operator
from amanda._operators.points import View
from amanda._tools.subscription import Subscription
from amanda._tools.tool import Tool

if TYPE_CHECKING:  # whose maps select
    from amanda._plans.context_map import Translation


@dataclass(slots=True, eq=False)
class Selection:
    """A selection is what a subscription looks at on one backend.

    Attributes:
        view: how it looks at the operators there.
        types: the types that it selects, as the vocabulary of its tool spells them; None for all.
        forward: the backend's types of the forward operators that may be among them; None for all.
        near: the backend's types that may be meant by one that is not there; they are watched.
    """

    subscription: Subscription
    view: View
    types: frozenset[str] | None
    forward: frozenset[str] | None
    near: frozenset[str] = frozenset()

    @property
    def tool(self) -> Tool:
        """Return the tool whose subscription it is."""
        return self.subscription.tool

    def takes(self, type: str) -> bool:
        """Tell whether a forward operator of a type of the backend may be one that it selects."""
        return self.forward is None or type in self.forward

    def reaches(self, scope: str) -> bool:
        """Tell whether it may select operators of a scope, or of one within it."""
        globs = self.subscription.scopes
        return globs is None or any(selects(g, scope) or may_select_within(g, scope) for g in globs)

    def has_class(self, type: str) -> bool:
        """Tell whether it selects calls of modules of a class."""
        return self.view is View.MODULE and (self.types is None or type in self.types)

    def has_module(self, type: str, path: str) -> bool:
        """Tell whether it selects calls of a module of a class at a path."""
        globs = self.subscription.scopes
        there = globs is None or any(fnmatchcase(path, glob) for glob in globs)
        return there and self.has_class(type)

    def wants(self, operator: Operator, translations: Mapping[str, Translation]) -> bool:
        """Tell whether it selects an operator, by type and scope, in the vocabulary of its tool."""
        globs, vocabulary = self.subscription.scopes, self.tool.vocabulary
        if operator.only_in not in (None, vocabulary) or not self.takes(operator.type):
            return False
        if globs is not None and not operator.within(*globs):
            return False
        translation = translations.get(vocabulary or "")
        if translation is None or self.types is None:
            return True
        return not self.types.isdisjoint(translation.types)

    def looks_at(self, operator: Operator, translations: Mapping[str, Translation]) -> bool:
        """Tell whether its tool sees an operator, maybe a module or a part of a composite."""
        if operator.is_module:
            return self.has_module(operator.type, operator.scope)
        if self.view is View.MODULE or self.tool.vocabulary in operator.part_in:
            return False
        if operator.opt_in and self.types is None and not self.subscription.opt_in:
            return False
        return self.wants(operator, translations)


def select(subscription: Subscription, driver: Driver) -> Selection:
    """Make the selection of a subscription whose tool speaks the backend's own vocabulary.

    So does each that looks at modules, which are the same in every vocabulary.
    """
    view, types = subscription.view, subscription.types(driver.canonical_type)
    if view is View.MODULE:
        return Selection(subscription, view, types, frozenset())
    if types is None:
        return Selection(subscription, view, None, None)
    if view is View.BACKWARD:
        return Selection(subscription, view, types, driver.forward_types(types))
    tool = subscription.tool
    is_of_candidates = tool.lists_candidates and tool.restricted_to is None  # no misspelt type
    near = () if is_of_candidates else driver.alike(types)
    return Selection(subscription, view, types, types, frozenset(near))
