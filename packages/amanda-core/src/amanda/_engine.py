"""The engine: asks the tools once about each operator, caches and composes what they decide.

Data flows one way: the framework runs an operator, its driver asks the engine for the plan, and
carries it out. An engine serves one driver, one thread and one set of tools in force.
"""

from __future__ import annotations

import threading
import weakref

from amanda._action import name_of, run_replacement, run_routines
from amanda._analysis import Analysis
from amanda._by_operator import ByOperator
from amanda._context import OpContext
from amanda._errors import AmandaError, RoutineError
from amanda._plan import BackwardPlan, GradientPlan, Plan
from amanda._routine import call
from amanda._tool import View
from amanda._vocabulary import (
    Sighting,
    composing,
    forward_types,
    misspelt,
    native_view,
    selected,
    shows,
    speaks_natively,
    wants_translated,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from amanda._action import Action
    from amanda._analysis import Execution
    from amanda._driver import Driver
    from amanda._operator import Operator
    from amanda._plan import Decisions
    from amanda._tool import Subscription, Tool


class Scope:
    """One ``with amanda.apply(...)`` block; ``open`` until it is left.

    ``seen`` has the types of the operators that ran in it, by vocabulary, as far as engines saw
    them.
    """

    __slots__ = ("open", "seen")

    def __init__(self) -> None:
        self.open = True
        self.seen: dict[str, set[str]] = {}


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


class Engine:
    """The tools in force in one thread, as one driver sees them.

    A driver calls, with interception paused wherever tools' code runs:

    1. ``plans.get(operator.serial)`` at each execution, and :meth:`analyze` when it gives None;
    2. :meth:`run` for the routines that the plan lists, and :meth:`complete` when it is pending;
    3. on the way back :meth:`backward_plan` and :meth:`gradient_plan`, with :meth:`live` applied
       to what they list, since a graph may outlive the scope in which it was built.
    """

    def __init__(
        self,
        driver: Driver,
        subscriptions: Sequence[Subscription],
        owners: Mapping[Tool, Scope],
        scope: Scope,
        contexts: ByOperator,
    ) -> None:
        self.driver = driver
        self.caching = True
        self.plans = ByOperator()
        self.wanted = self._wanted(subscriptions, driver)
        self._subscriptions = subscriptions
        self.vocabularies = {
            s.tool.vocabulary
            for s in subscriptions
            if s.tool.vocabulary is not None and not speaks_natively(s, driver)
        }
        self.composing = composing(self.vocabularies, driver)
        self._sightings = ByOperator()
        self._owners = owners
        self._scope = scope
        self.contexts = contexts
        self._backward_plans = ByOperator()
        self._gradient_plans = ByOperator()
        self._matching_cache: dict[tuple[Any, ...], tuple[Subscription, ...]] = {}
        self._rank = {subscription: rank for rank, subscription in enumerate(subscriptions)}
        self._decided = ByOperator()
        self._inside: dict[str, Engine | None] = {}
        self._by_subscriptions: dict[tuple[Subscription, ...], Engine] = {}
        self._lock = threading.RLock()
        _engines.add(self)

    # What is wanted

    @staticmethod
    def _wanted(subscriptions: Iterable[Subscription], driver: Driver) -> frozenset[str] | None:
        """Types of forward operators that must be intercepted; None for all."""
        types: set[str] = set()
        for subscription in subscriptions:
            ops = forward_types(subscription, driver)
            if ops is None:
                return None
            types |= ops
            types |= misspelt(subscription, driver)
        return frozenset(types)

    def wants(self, type: str) -> bool:
        """Whether forward operators of this type must be intercepted."""
        return self.wanted is None or type in self.wanted

    def inside(self, type: str) -> Engine | None:
        """The engine for operators that run inside one of this type; None when nobody looks.

        A tool that wants an operator takes it as one; only tools that do not want it look inside.
        Which ones want an operator that was analyzed is known better: see :attr:`Plan.inside`.
        """
        try:
            return self._inside[type]
        except KeyError:
            pass
        with self._lock:
            engine = self._inside[type] = self._without(self._may_want(type))
            return engine

    def _may_want(self, type: str) -> list[Subscription]:
        return [
            s
            for s in self._subscriptions
            if (ops := forward_types(s, self.driver)) is None or type in ops
        ]

    def _inside_of(self, operator: Operator) -> Engine | None:
        """The engine for what runs inside an operator, which may be another one in translation."""
        if not self.vocabularies:
            return self.inside(operator.type)
        translations = self._sightings[operator.serial].translations
        wanting = self._may_want(operator.type)
        return self._without(s for s in wanting if wants_translated(s, self.driver, translations))

    def _without(self, wanting: Iterable[Subscription]) -> Engine | None:
        """The engine of all tools but those of these subscriptions; None if there are no others."""
        satisfied = {s.tool for s in wanting}
        rest = tuple(s for s in self._subscriptions if s.tool not in satisfied)
        if not rest:
            return None
        if len(rest) == len(self._subscriptions):
            return self
        if rest not in self._by_subscriptions:
            engine = Engine(self.driver, rest, self._owners, self._scope, self.contexts)
            engine.set_caching(self.caching)
            self._by_subscriptions[rest] = engine
        return self._by_subscriptions[rest]

    # Forward operators

    def analyze(self, execution: Execution) -> Plan:
        """Have the tools decide about an operator that has no plan yet.

        Raises:
            RoutineError: from what an analysis routine raised.
            ActionError, UnsupportedError: from an insertion that cannot be.
        """
        operator = execution.operator
        with self._lock:
            self._look_at(execution)
            matching = self._matching(View.FORWARD, operator)
            ready, pending = self._split(matching, operator)
            plan = self._plan(operator, self._decide(ready, execution), pending)
            self._keep(self.plans, operator, plan)
            return plan

    def complete(self, plan: Plan, execution: Execution) -> Plan:
        """Have the pending analyses of a plan decide, now that the outputs are known."""
        operator = execution.operator
        with self._lock:
            decisions = (*plan.decisions, *self._decide(plan.pending, execution))
            completed = self._plan(operator, decisions, ())
            self._keep(self.plans, operator, completed)
            return completed

    # The way back

    def backward_plan(self, execution: Execution) -> BackwardPlan:
        """The plan for a backward operator, analyzed at its first execution."""
        assert execution.backward_operator is not None
        backward_operator = execution.backward_operator
        plan = self._backward_plans.get(backward_operator.serial)
        if plan is not None:
            return plan  # type: ignore[no-any-return]
        with self._lock:
            self._look_back(execution)
            self._saw(self.driver.vocabulary, backward_operator.type)
            matching = [
                s
                for s in self._matching(View.BACKWARD, execution.operator)
                if (ops := selected(s, self.driver)) is None
                or backward_operator.type in ops
                or execution.operator.type in ops
            ]
            ready, pending = self._split(matching, backward_operator)
            plan = BackwardPlan(backward_operator, self._decide(ready, execution), pending)
            self._keep(self._backward_plans, backward_operator, plan)
            return plan

    def complete_backward(self, plan: BackwardPlan, execution: Execution) -> BackwardPlan:
        """Have the pending analyses decide, now that the input gradients are known."""
        assert execution.backward_operator is not None
        with self._lock:
            decisions = (*plan.decisions, *self._decide(plan.pending, execution))
            completed = BackwardPlan(execution.backward_operator, decisions, ())
            self._keep(self._backward_plans, execution.backward_operator, completed)
            return completed

    def known_backward_plan(self, backward_operator: Operator) -> BackwardPlan | None:
        """The plan for a backward operator if it was analyzed before."""
        return self._backward_plans.get(backward_operator.serial)

    def gradient_plan(self, execution: Execution) -> GradientPlan:
        """The plan for the gradient of an operator as a whole, analyzed at its first backward."""
        plan = self._gradient_plans.get(execution.operator.serial)
        if plan is not None:
            return plan  # type: ignore[no-any-return]
        with self._lock:
            self._look_back(execution)
            matching = self._matching(View.GRADIENT, execution.operator)
            plan = GradientPlan(self._decide(matching, execution))
            self._keep(self._gradient_plans, execution.operator, plan)
            return plan

    def known_gradient_plan(self, operator: Operator) -> GradientPlan | None:
        """The plan for the gradient of an operator if it was analyzed before."""
        return self._gradient_plans.get(operator.serial)

    # Running routines

    def run(
        self, actions: Sequence[Action], tensors: Sequence[Any], operator: Operator
    ) -> Sequence[Any]:
        """Run routines in order; see :func:`amanda._action.run_routines`."""
        return run_routines(actions, tensors, operator, self.driver.refusal)

    def replace(
        self,
        action: Action,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        operator: Operator,
    ) -> Sequence[Any]:
        """Run a replacement; see :func:`amanda._action.run_replacement`."""
        return run_replacement(action, inputs, outputs, operator, self.driver.refusal)

    def live(self, actions: tuple[Action, ...]) -> tuple[Action, ...]:
        """Those of ``actions`` whose tools are still in force."""
        if self._scope.open:
            return actions
        return tuple(a for a in actions if self._owners[a.tool].open)

    @property
    def open(self) -> bool:
        """Whether any of the tools is still in force."""
        return self._scope.open or any(scope.open for scope in self._owners.values())

    # Caching

    def set_caching(self, caching: bool) -> None:
        """Whether to keep what is decided from now on, and to use what was kept before."""
        self.caching = caching
        if not caching:  # decisions stay, and are used again once caching is back on
            self._drop_plans()
        for engine in self._by_subscriptions.values():
            engine.set_caching(caching)

    def forget(self, tools: Iterable[Tool] | None = None) -> None:
        """Forget what the given tools decided (all tools for None), so that they are asked anew."""
        with self._lock:
            gone = None if tools is None else set(tools)
            for decided in list(self._decided.values()):
                for subscription in list(decided):
                    if gone is None or subscription.tool in gone:
                        del decided[subscription]
            self._drop_plans()

    def _drop_plans(self) -> None:
        for plans in (self.plans, self._backward_plans, self._gradient_plans):
            plans.clear()
        self.driver.forgotten(self)

    # Inside

    def _matching(self, view: View, operator: Operator) -> Sequence[Subscription]:
        key = (view, operator.type, operator.on_request, operator.only_in, operator.part_in)
        if key not in self._matching_cache:
            self._matching_cache[key] = tuple(
                s
                for s in self._subscriptions
                if native_view(s, self.driver) is view
                and shows(operator, s.tool)
                and not (
                    operator.on_request and selected(s, self.driver) is None and not s.on_request
                )
                and ((ops := forward_types(s, self.driver)) is None or operator.type in ops)
            )
        matching = self._matching_cache[key]
        if not self.vocabularies:
            return matching
        translations = self._sightings[operator.serial].translations
        return [s for s in matching if wants_translated(s, self.driver, translations)]

    def _look_at(self, execution: Execution) -> None:
        sighting = Sighting(self.driver, execution, self.vocabularies)
        self._sightings.keep(execution.operator, sighting)
        if execution.operator.only_in is None:
            self._saw(self.driver.vocabulary, execution.operator.type)
        for vocabulary, translation in sighting.translations.items():
            self._saw(vocabulary, translation.type, translation.type + "Grad")

    def _saw(self, vocabulary: str, *types: str) -> None:
        for scope in {self._scope, *self._owners.values()}:
            scope.seen.setdefault(vocabulary, set()).update(types)

    def _look_back(self, execution: Execution) -> None:
        if execution.operator.serial not in self._sightings:  # it ran outside of the scope
            self._look_at(execution)

    def _keep(self, plans: ByOperator, operator: Operator, plan: Any) -> None:
        if self.caching:
            plans.keep(operator, plan)

    def _split(
        self, matching: Iterable[Subscription], operator: Operator
    ) -> tuple[list[Subscription], tuple[Subscription, ...]]:
        """Subscriptions that can decide now, and those that wait for the outputs."""
        known = self._decided.get(operator.serial, ()) if self.caching else ()
        pending = tuple(s for s in matching if s.require_outputs and s not in known)
        return [s for s in matching if s not in pending], pending

    def _decide(self, subscriptions: Iterable[Subscription], execution: Execution) -> Decisions:
        """Ask each subscription, or take what it decided before and has not been forgotten.

        A tool that is no longer in force is not asked: a backward may run after its scope.
        """
        operator = execution.backward_operator or execution.operator
        decided: dict[Subscription, tuple[Action, ...]] = {}
        if self.caching:
            decided = self._decided.get(operator.serial, decided)
            self._decided.keep(operator, decided)
        decisions: list[tuple[int, Action]] = []
        for subscription in subscriptions:
            if not self._owners[subscription.tool].open:
                continue
            if subscription not in decided:
                decided[subscription] = self._ask(subscription, execution)
            rank = self._rank[subscription]
            decisions += ((rank, action) for action in decided[subscription])
        return tuple(decisions)

    def _ask(self, subscription: Subscription, execution: Execution) -> tuple[Action, ...]:
        operator = execution.operator
        context = self.contexts.get(operator.serial)
        if context is None:
            context = OpContext(operator, self.driver)
            self.contexts.keep(operator, context)
        sighting: Sighting = self._sightings[operator.serial]
        tool, view = subscription.tool, subscription.view
        analysis = Analysis(self.driver, tool, view, execution, sighting.parameters)
        translation = sighting.translations.get(tool.vocabulary or "")
        shown = analysis if translation is None else translation.analysis(analysis)
        previous, context._analysis = context._analysis, shown
        try:
            call(subscription.callback, context)
        except AmandaError:
            raise
        except Exception as original:
            raise RoutineError(
                f"{type(original).__name__}: {original}",
                tool=tool.name,
                routine=name_of(subscription.callback),
                operator_id=(execution.backward_operator or operator).id,
                point="analysis",
            ) from original
        finally:
            context._analysis = previous
        return tuple(analysis.actions)

    def _plan(
        self, operator: Operator, decisions: Decisions, pending: tuple[Subscription, ...]
    ) -> Plan:
        return Plan(
            operator,
            decisions,
            pending,
            backward=bool(self._matching(View.BACKWARD, operator)),
            gradient=bool(self._matching(View.GRADIENT, operator)),
            inside=self._inside_of(operator),
        )


def invalidate(tool: Tool) -> None:
    """Forget what a tool, and the tools that depend on it, decided."""
    for engine in list(_engines):
        stale = {tool}
        for other in engine._owners:  # dependencies come first
            if not stale.isdisjoint(other.direct_dependencies()):
                stale.add(other)
        engine.forget(stale)


def clear_cache() -> None:
    """Forget every decision of every tool in force: each operator is analyzed anew."""
    for engine in list(_engines):
        engine.forget()
