"""The audience of what runs in a thread are its active tools, as they look at one backend."""

from __future__ import annotations

from collections.abc import Sequence

from amanda._contexts.action import Action
from amanda._drivers.driver import Driver
from amanda._drivers.vocabulary import context_map
from amanda._operators.operator import Operator
from amanda._operators.points import View
from amanda._plans.selection import Selection, select
from amanda._threads.active import Active
from amanda._tools.subscription import Subscription


class Audience:
    """An audience is the active tools of one thread, as they look at the operators of one backend.

    Attributes:
        driver: the backend's.
        active: the tools.
        wanted: types of forward operators that must be intercepted; None for all.
        filters_scopes: whether all tools look at operators, or modules, of some scopes alone.
        wants_modules: whether any tool looks at modules.
        needs_modules: whether one of them cannot do without.
        wants_backward: whether any tool looks at backward operators.
        wants_gradients: whether any tool looks at gradients of operators as a whole.
        context_maps: those to the vocabularies that tools speak and the backend does not.

    Args:
        subscriptions: those of the tools, in the order in which they decide.
    """

    def __init__(
        self, driver: Driver, subscriptions: Sequence[Subscription], active: Active
    ) -> None:
        self.driver = driver
        spoken = {s.tool.vocabulary or "" for s in subscriptions} - {"", driver.vocabulary}
        self.context_maps = {v: context_map(driver.vocabulary, v) for v in sorted(spoken)}
        self._selections = [self._select(subscription) for subscription in subscriptions]
        known = [s.forward | s.near for s in self._selections if s.forward is not None]
        every = len(known) < len(subscriptions)
        self.wanted = None if every else frozenset[str]().union(*known)
        of_modules = [s for s in subscriptions if s.view is View.MODULE]
        self.wants_modules = bool(of_modules)
        self.needs_modules = not all(s.optional for s in of_modules)
        self.wants_backward = any(s.view is View.BACKWARD for s in self._selections)
        self.wants_gradients = any(s.view is View.GRADIENT for s in self._selections)
        self.filters_scopes = all(s.scopes is not None for s in subscriptions)
        self.active = active
        self._scopes = {active.scope, *active.owners.values()}
        self._within: dict[str, bool] = {}
        self._classes: dict[str, bool] = {}
        self._modules: dict[tuple[str, str], bool] = {}

    def _select(self, subscription: Subscription) -> Selection:
        translating = self.context_maps.get(subscription.tool.vocabulary or "")
        if translating is None or subscription.view is View.MODULE:
            return select(subscription, self.driver)
        return translating.select(subscription, self.driver)

    def wants(self, type: str) -> bool:
        """Tell whether forward operators of this type must be intercepted."""
        return self.wanted is None or type in self.wanted

    def sees(self, operator: Operator) -> bool:
        """Tell whether any tool may see an operator of a wanted type, which is there.

        None does where it is hidden from tools that do not ask for such, and none asks for it.
        """
        self._saw(self.driver.vocabulary, operator.scope, operator.type)
        return not operator.opt_in or any(
            s.takes(operator.type) and (s.types is not None or s.subscription.opt_in)
            for s in self._selections
        )

    def wants_class(self, type: str) -> bool:
        """Tell whether any tool looks at modules of a class, one of which is being called."""
        if type not in self._classes:
            for scope in self._scopes:
                scope.classes.add(type)
            self._classes[type] = any(s.has_class(type) for s in self._selections)
        return self._classes[type]

    def wants_module(self, type: str, path: str) -> bool:
        """Tell whether any tool looks at a module of a class at a path, which is being called."""
        module = type, path
        if module not in self._modules:
            for scope in self._scopes:
                scope.paths.add(path)
            of_class = self.wants_class(type)
            wanted = of_class and any(s.has_module(type, path) for s in self._selections)
            self._modules[module] = wanted
        return self._modules[module]

    def looks_within(self, scope: str) -> bool:
        """Tell whether any tool may want an operator or module in a scope of the model, or within
        it.

        Where none does, a driver need not intercept anything.
        """
        if scope not in self._within:
            self._saw(self.driver.vocabulary, scope)
            self._within[scope] = any(s.reaches(scope) for s in self._selections)
        return self._within[scope]

    def live(self, actions: tuple[Action, ...]) -> tuple[Action, ...]:
        """Return those of ``actions`` whose tools are still active."""
        if self.active.scope.open:
            return actions
        return tuple(action for action in actions if self.active.owners[action.tool].open)

    @property
    def open(self) -> bool:
        """Tell whether any of the tools is still active."""
        return self.active.scope.open or any(scope.open for scope in self._scopes)

    def _saw(self, vocabulary: str, where: str, *types: str, backward: bool = False) -> None:
        """Note, for each scope, what ran there and in which scope of the model."""
        for scope in self._scopes:
            seen = scope.gradients if backward else scope.seen
            seen[vocabulary].update(types)
            scope.places.add(where)
