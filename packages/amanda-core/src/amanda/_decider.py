"""What the tools decide: each analysis routine is asked once about an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda._action import name_of
from amanda._analysis import Analysis
from amanda._by_operator import ByOperator
from amanda._context import OpContext
from amanda._errors import AmandaError, RoutineError
from amanda._routine import call

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from amanda._action import Action
    from amanda._analysis import Execution
    from amanda._driver import Driver
    from amanda._engine import Scope
    from amanda._plan import Decisions
    from amanda._tool import Subscription, Tool
    from amanda._vocabulary import OperatorInfo


class Decider:
    """Asks the tools in force, and keeps what they decided for as long as operators live.

    Args:
        driver: that of the backend.
        subscriptions: all of those in force, in their order.
        owners: for each tool, the scope that put it in force.
        contexts: those of the operators.
    """

    def __init__(
        self,
        driver: Driver,
        subscriptions: Sequence[Subscription],
        owners: Mapping[Tool, Scope],
        contexts: ByOperator,
    ) -> None:
        self._driver = driver
        self._owners = owners
        self._contexts = contexts
        self._rank = {subscription: rank for rank, subscription in enumerate(subscriptions)}
        self.kept = ByOperator()

    def split(
        self, matching: Iterable[Subscription], execution: Execution, caching: bool
    ) -> tuple[list[Subscription], tuple[Subscription, ...]]:
        """Subscriptions that can decide now, and those that wait for the outputs."""
        operator = execution.backward_operator or execution.operator
        known = self.kept.get(operator.serial, ()) if caching else ()
        pending = tuple(s for s in matching if s.require_outputs and s not in known)
        return [s for s in matching if s not in pending], pending

    def decide(
        self,
        subscriptions: Iterable[Subscription],
        execution: Execution,
        info: OperatorInfo,
        caching: bool,
    ) -> Decisions:
        """Ask each subscription, or take what it decided before and has not been forgotten.

        A tool that is no longer in force is not asked: a backward may run after its scope.
        """
        operator = execution.backward_operator or execution.operator
        decided: dict[Subscription, tuple[Action, ...]] = {}
        if caching:
            decided = self.kept.get(operator.serial, decided)
            self.kept.keep(operator, decided)
        ranked: list[tuple[int, Action]] = []
        for subscription in subscriptions:
            if not self._owners[subscription.tool].open:
                continue
            if subscription not in decided:
                decided[subscription] = self._ask(subscription, execution, info)
            rank = self._rank[subscription]
            ranked += ((rank, action) for action in decided[subscription])
        return tuple(ranked)

    def forget(self, tools: Iterable[Tool] | None) -> None:
        """Forget what the given tools decided (all tools for None)."""
        gone = None if tools is None else set(tools)
        for decided in list(self.kept.values()):
            for subscription in list(decided):
                if gone is None or subscription.tool in gone:
                    del decided[subscription]

    def _ask(
        self, subscription: Subscription, execution: Execution, info: OperatorInfo
    ) -> tuple[Action, ...]:
        operator, tool = execution.operator, subscription.tool
        context = self._contexts.get(operator.serial)
        if context is None:
            context = OpContext(operator, self._driver)
            self._contexts.keep(operator, context)
        analysis = Analysis(self._driver, tool, subscription.view, execution, info.parameters)
        translation = info.translations.get(tool.vocabulary or "")
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
