"""The engine asks the tools once about each operator, caches and composes what they decide.

Data flows one way: the framework runs an operator, its driver asks the engine for the plan, and
carries it out. An engine serves one driver, one thread and one set of active tools.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from amanda._contexts.action import Action, Check
from amanda._contexts.analysis import Analysis
from amanda._contexts.context import OpContext
from amanda._contexts.forward import NOTHING, Forward
from amanda._drivers.driver import Driver
from amanda._errors import AmandaError, UnsupportedError
from amanda._operators.operator import ByOperator, Execution, Operator
from amanda._operators.points import View
from amanda._operators.producers import InputProducers
from amanda._plans.audience import Audience
from amanda._plans.plan import Decisions, Plan, Record
from amanda._plans.selection import Selection
from amanda._plans.uses import note
from amanda._threads.active import Active
from amanda._tools.forgetting import engines
from amanda._tools.subscription import Subscription
from amanda._tools.tool import Tool


class Engine(Audience):
    """An engine keeps what the active tools of one thread decided, for one driver to carry out.

    A driver calls, with interception paused wherever tools' code runs:

    1. :meth:`plan` at each execution, and :meth:`analyze` when it gives None;
    2. :meth:`run` for the routines that the plan lists, and :meth:`complete` when it is pending;
    3. in the backward pass :meth:`backward_plan` and :meth:`gradient_plan`, with :meth:`live`
       applied to what they list, since a graph may outlive the scope in which it was built.

    A call of a module is an operator too, if :meth:`wants_module` says so; what runs within it
    does so under the same engine.

    Attributes:
        records: what is known of the operators, by ``operator.serial``.
        ready: what the driver has made of their plans to carry them out, if it keeps that here; it
            goes with the plan.
        contexts: their contexts, shared by the engines of a scope and those within it.
        caching: whether what is decided is kept.
        failure: the error of a routine that was called back, to be raised where it is heard.
    """

    def __init__(
        self, driver: Driver, subscriptions: Sequence[Subscription], active: Active
    ) -> None:
        super().__init__(driver, subscriptions, active)
        self.caching = True
        self.contexts = active.contexts
        self.records: ByOperator[Record] = ByOperator()
        self.ready: ByOperator[Any] = ByOperator()
        self.failure: AmandaError | None = None
        self._inside: dict[str, Engine | None] = {}
        self._parts: dict[tuple[Subscription, ...], Engine] = {}
        self._stamp = object()
        self._lock = threading.RLock()
        engines.add(self)

    # What runs inside

    def inside(self, type: str) -> Engine | None:
        """Return the engine for operators that run inside one of this type; None when nobody looks.

        A tool that wants an operator takes it as one; only tools that do not want it look inside.
        Which ones want an operator that was analyzed is known better: see :attr:`Plan.inside`.
        """
        if type not in self._inside:
            with self._lock:
                satisfied = {s.tool for s in self._selections if s.takes(type)}
                self._inside[type] = self._without(satisfied)
        return self._inside[type]

    def _without(self, tools: Collection[Tool], scope: str = "") -> Engine | None:
        """Return the engine of all other tools in a scope of a model; None if none looks."""
        within = (s.subscription for s in self._selections if s.reaches(scope))
        rest = tuple(s for s in within if s.tool not in tools)
        if not rest or len(rest) == len(self._selections):
            return self if rest else None
        if rest not in self._parts:
            engine = Engine(self.driver, rest, self.active)
            engine.set_caching(self.caching)
            self._parts[rest] = engine
        return self._parts[rest]

    # Plans

    def plan(self, operator: Operator) -> Plan | None:
        """Return the plan for an operator, or backward operator, that was analyzed before."""
        record = self.records.get(operator.serial)
        return None if record is None else record.plan

    def known_gradient_plan(self, operator: Operator) -> Plan | None:
        """Return the plan for the gradient of an operator if it was analyzed before."""
        record = self.records.get(operator.serial)
        return None if record is None else record.gradient

    def analyze(self, execution: Execution) -> Plan:
        """Have the tools decide about an operator that has no plan yet.

        Raises:
            RoutineError: from what an analysis routine raised.
            ActionError, UnsupportedError: from an insertion that cannot be.
        """
        with self._lock:
            self._look_at(execution)
            is_module = execution.operator.is_module
            return self._asked(View.MODULE if is_module else View.FORWARD, execution)

    def backward_plan(self, execution: Execution) -> Plan:
        """Return the plan for a backward operator, which is analyzed at its first execution."""
        return self.plan(execution.runs) or self._asked(View.BACKWARD, execution)

    def gradient_plan(self, execution: Execution) -> Plan:
        """Return the plan for the gradient of an operator as a whole, analyzed at its first
        backward."""
        known = self.known_gradient_plan(execution.operator)
        return known or self._asked(View.GRADIENT, execution)

    def complete(self, plan: Plan, execution: Execution) -> Plan:
        """Have the pending analyses of a plan decide, now that what they wait for is known.

        That is the outputs, or the gradients that a backward operator returned.
        """
        with self._lock:
            decisions = {**plan.decisions, **self._decide(plan.pending, execution)}
            return self._planned(plan.view, execution, decisions, ())

    def keeps_forward(self, operator: Operator) -> bool:
        """Tell whether the tensors of an operator's forward side are to be kept until its backward
        operators are analyzed."""
        return any(
            s.subscription.keep_forward or s.tool.vocabulary in self.context_maps
            for s in self._looking(View.BACKWARD, operator)
        )

    # Running routines

    def run(
        self,
        actions: Sequence[Action],
        tensors: Sequence[Any],
        operator: Operator,
        check: Check | None = None,
        like: Sequence[Any] | None = None,
        forward: Forward = NOTHING,
    ) -> Sequence[Any]:
        """Run routines one after the other; each sees what the one before it returned.

        See :meth:`Action.run`. ``check`` is the driver's ``incompatible_reason`` unless it is
        given, and ``like`` is given for a replacement alone. ``forward`` is what they may ask for.
        """
        check = check or self.driver.incompatible_reason
        for action in actions:
            replaced = tensors if like is None else like
            tensors = action.run(tensors, replaced, operator, check, forward)
        return tensors

    # Caching

    @property
    def stamp(self) -> object:
        """Return the same object as long as what was made by plans, such as a program, may be used.

        It is another one once plans were dropped, maybe by another thread, and each time while
        nothing is kept.
        """
        return self._stamp if self.caching else object()

    def set_caching(self, caching: bool) -> None:
        """Say whether to keep what is decided from now on, and to use what was kept before."""
        self.caching = caching
        if not caching:  # decisions stay, and are used again once caching is back on
            self._drop_plans()
        for engine in self._parts.values():
            engine.set_caching(caching)

    def forget(self, tool: Tool | None = None) -> None:
        """Forget what a tool and those that depend on it decided, or all that was decided.

        They are asked anew.
        """
        gone = {*self.active.owners} if tool is None else {tool}
        for other in self.active.owners:  # dependencies come first
            if not gone.isdisjoint(other.direct_dependencies()):
                gone.add(other)
        with self._lock:
            for record in list(self.records.values()):
                for subscription in list(record.decided):
                    if subscription.tool in gone:
                        del record.decided[subscription]
            self._drop_plans()

    def _drop_plans(self) -> None:
        for record in list(self.records.values()):
            record.plan = record.gradient = None
        self.ready.clear()
        self._stamp = object()

    # Inside

    def _asked(self, view: View, execution: Execution) -> Plan:
        """Make a plan by all who look at an operator in a way, but for those that wait for more."""
        with self._lock:
            operator, about = execution.operator, execution.runs
            if self._record(operator).parameters is None:  # it ran outside of the scope
                self._look_at(execution)
            looking = self._looking(view, operator)
            if view is View.BACKWARD:
                named = self.driver.backward_names(about.type)
                self._saw(self.driver.vocabulary, operator.scope, *named, backward=True)
                names = {operator.type, *named}
                looking = [s for s in looking if s.types is None or not s.types.isdisjoint(names)]
            known = self._record(about).decided if self.caching else {}
            pending: tuple[Selection, ...] = ()
            if view is not View.GRADIENT:  # which can tell all at once
                waiting = (s for s in looking if s.subscription.require_outputs)
                pending = tuple(s for s in waiting if s.subscription not in known)
            decisions = self._decide([s for s in looking if s not in pending], execution)
            return self._planned(view, execution, decisions, pending)

    def _planned(
        self, view: View, execution: Execution, decisions: Decisions, pending: tuple[Selection, ...]
    ) -> Plan:
        operator, about = execution.operator, execution.runs
        backward = gradient = False
        inside = self if view is View.MODULE else None
        producers: Mapping[Tool, InputProducers] = {}
        if view is View.FORWARD:
            backward = bool(self._looking(View.BACKWARD, operator))
            gradient = bool(self._looking(View.GRADIENT, operator))
            translations = self._record(operator).translations
            satisfied = {s.tool for s in self._selections if s.wants(operator, translations)}
            inside = self._without(satisfied, operator.scope)
            producers = self._producers(operator)
        decisions = {s: decisions[s] for s in self._selections if s in decisions}
        plan = Plan(about, view, decisions, pending, backward, gradient, inside, producers)
        if self.caching and view is View.GRADIENT:
            self._record(operator).gradient = plan
        elif self.caching:
            record = self._record(about)
            record.plan, record.gradient = plan, plan.whole or record.gradient
            self.ready.pop(about.serial, None)
        return plan

    def _looking(self, view: View, operator: Operator) -> list[Selection]:
        """Return the selections that look at an operator in one way."""
        translations = self._record(operator).translations
        there = (s for s in self._selections if s.view is view)
        return [s for s in there if s.looks_at(operator, translations)]

    def _producers(self, operator: Operator) -> dict[Tool, InputProducers]:
        """Return where to note what makes an operator's inputs, by the tools that want to know."""
        looking = self._looking(View.FORWARD, operator)
        tools = [s.tool for s in looking if s.subscription.require_producers]
        if tools and not self.driver.tells_producers:
            raise UnsupportedError(
                f"{tools[0].name}: what makes the inputs of {operator.named} is not told by the "
                f"driver for {self.driver.backend}; run the model on another backend, or without "
                "this tool"
            )
        context = self._context(operator)
        return {tool: context._producers_for(tool) for tool in tools}

    def _context(self, operator: Operator) -> OpContext:
        return self.contexts.of(operator, lambda: OpContext(operator, self.driver))

    def _record(self, operator: Operator) -> Record:
        return self.records.of(operator, Record)

    def _look_at(self, execution: Execution) -> None:
        """Note what can be told of an operator on its forward side alone."""
        driver, operator = self.driver, execution.operator
        record = self._record(operator)
        record.parameters = [driver.is_parameter(tensor) for tensor in execution.inputs]
        if operator.is_module:  # which is the same in every vocabulary
            return
        record.translations = {
            vocabulary: translating.translate(execution, driver)
            for vocabulary, translating in self.context_maps.items()
        }
        if operator.only_in is None:
            self._saw(driver.vocabulary, operator.scope, operator.type)
        for vocabulary, translation in record.translations.items():
            self._saw(vocabulary, operator.scope, *translation.types)

    def _decide(self, selections: Iterable[Selection], execution: Execution) -> Decisions:
        """Ask each subscription, or take what it decided before and has not been forgotten.

        A tool that is no longer active is not asked: a backward may run after its scope.
        """
        decided = self._record(execution.runs).decided if self.caching else {}
        found: dict[Selection, tuple[Action, ...]] = {}
        for selection in selections:
            subscription = selection.subscription
            if self.active.owners[subscription.tool].open:
                if subscription not in decided:
                    decided[subscription] = self._ask(subscription, execution)
                found[selection] = decided[subscription]
        return found

    def _ask(self, subscription: Subscription, execution: Execution) -> tuple[Action, ...]:
        operator, tool = execution.operator, subscription.tool
        context = self._context(operator)
        if subscription.require_producers:
            context._producers_for(tool)
        record = self._record(operator)
        parameters = record.parameters or ()
        analysis = Analysis(self.driver, tool, subscription.view, execution, parameters)
        analysis.has_forward = subscription.keep_forward
        translation = record.translations.get(tool.vocabulary or "")
        shown = analysis if translation is None else translation.analysis(analysis)
        context._ask(subscription.callback, shown)
        if subscription.view is View.FORWARD:
            note(subscription, analysis)
        return tuple(analysis.actions)
