"""The engine: asks the tools once about each operator, caches and composes what they decide.

Data flows one way: the framework runs an operator, its driver asks the engine for the plan, and
carries it out. An engine serves one driver, one thread and one set of tools in force.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amanda._audience import Audience
from amanda._by_operator import ByOperator
from amanda._decider import Decider
from amanda._plan import BackwardPlan, GradientPlan, Plan
from amanda._tool import View
from amanda._vocabulary import OperatorInfo, selected

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from amanda._action import Action, Check
    from amanda._analysis import Execution
    from amanda._driver import Driver
    from amanda._operator import Operator
    from amanda._plan import Decisions
    from amanda._tool import Subscription, Tool


@dataclass(slots=True, eq=False)
class Scope:
    """One ``with amanda.apply(...)`` block; ``open`` until it is left.

    ``seen`` has the types of the operators that ran in it, by vocabulary, as far as engines saw
    them.
    """

    open: bool = True
    seen: dict[str, set[str]] = field(default_factory=dict)


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


class Engine:
    """The tools in force in one thread, as one driver sees them.

    A driver calls, with interception paused wherever tools' code runs:

    1. ``plans.get(operator.serial)`` at each execution, and :meth:`analyze` when it gives None;
    2. :meth:`run` for the routines that the plan lists, and :meth:`complete` when it is pending;
    3. in the backward pass :meth:`backward_plan` and :meth:`gradient_plan`, with :meth:`live`
       applied to what they list, since a graph may outlive the scope in which it was built.

    Attributes:
        plans: those of the operators that were analyzed, by ``operator.serial``.
        contexts: their contexts, shared by the engines of a scope and those within it.
        caching: whether what is decided is kept.
        wanted: types of forward operators that must be intercepted; None for all.
        vocabularies: those that tools speak and the backend does not.
        composing: the context maps that find composites in the backend's graphs, by vocabulary.
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
        self.contexts = contexts
        self.plans = ByOperator()
        self._backward_plans = ByOperator()
        self._gradient_plans = ByOperator()
        self._audience = Audience(driver, subscriptions)
        self.wanted = self._audience.wanted
        self.vocabularies = self._audience.vocabularies
        self.composing = self._audience.composing
        self._decider = Decider(driver, subscriptions, owners, contexts)
        self._info = ByOperator()
        self._subscriptions = subscriptions
        self._owners = owners
        self._scope = scope
        self._inside: dict[str, Engine | None] = {}
        self._by_subscriptions: dict[tuple[Subscription, ...], Engine] = {}
        self._lock = threading.RLock()
        _engines.add(self)

    # What is wanted

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
            engine = self._inside[type] = self._without(self._audience.wanting(type))
            return engine

    def _inside_of(self, operator: Operator) -> Engine | None:
        """The engine for what runs inside an operator, which may be another one in translation."""
        translations = self._info[operator.serial].translations
        if not translations:
            return self.inside(operator.type)
        return self._without(self._audience.wanting(operator.type, translations))

    def _without(self, wanting: Iterable[Subscription]) -> Engine | None:
        """The engine of all tools but those of these subscriptions; None if there are no others."""
        rest = self._audience.without(wanting)
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
            ready, pending = self._decider.split(matching, execution, self.caching)
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

    # Backward

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
            ready, pending = self._decider.split(matching, execution, self.caching)
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
        self,
        actions: Sequence[Action],
        tensors: Sequence[Any],
        operator: Operator,
        check: Check | None = None,
        like: Sequence[Any] | None = None,
    ) -> Sequence[Any]:
        """Run routines one after the other; each sees what the one before it returned.

        Args:
            actions: in the order in which they run.
            tensors: what they may select from.
            operator: the operator, or backward operator, at which they run.
            check: in place of the driver's ``incompatible_reason``.
            like: what the results of a replacement stand for; ``tensors`` for all others.

        Returns:
            ``tensors``, or ``like``, itself when nothing was replaced, else a new list.

        Raises:
            RoutineError: a routine failed, or returned what cannot be used.
        """
        check = check or self.driver.incompatible_reason
        for action in actions:
            tensors = action.run(tensors, tensors if like is None else like, operator, check)
        return tensors

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
            self._decider.forget(tools)
            self._drop_plans()

    def _drop_plans(self) -> None:
        for plans in (self.plans, self._backward_plans, self._gradient_plans):
            plans.clear()
        self.driver.forgotten(self)

    # Inside

    def _matching(self, view: View, operator: Operator) -> Sequence[Subscription]:
        return self._audience.matching(view, operator, self._info[operator.serial].translations)

    def _decide(self, subscriptions: Iterable[Subscription], execution: Execution) -> Decisions:
        info = self._info[execution.operator.serial]
        return self._decider.decide(subscriptions, execution, info, self.caching)

    def _look_at(self, execution: Execution) -> None:
        info = OperatorInfo.of(execution, self.driver, self.vocabularies)
        self._info.keep(execution.operator, info)
        if execution.operator.only_in is None:
            self._saw(self.driver.vocabulary, execution.operator.type)
        for vocabulary, translation in info.translations.items():
            self._saw(vocabulary, translation.type, translation.type + "Grad")

    def _look_back(self, execution: Execution) -> None:
        if execution.operator.serial not in self._info:  # it ran outside of the scope
            self._look_at(execution)

    def _saw(self, vocabulary: str, *types: str) -> None:
        for scope in {self._scope, *self._owners.values()}:
            scope.seen.setdefault(vocabulary, set()).update(types)

    def _keep(self, plans: ByOperator, operator: Operator, plan: Any) -> None:
        if self.caching:
            plans.keep(operator, plan)

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
