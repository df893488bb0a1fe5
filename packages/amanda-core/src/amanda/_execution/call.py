"""Plans are carried out here call by call, for drivers whose framework runs operators one by one.

A framework may also stage functions: run them once on placeholders, and then as a program.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from amanda._contexts.action import Action
from amanda._contexts.forward import NOTHING, Forward
from amanda._errors import AmandaError, UnsupportedError
from amanda._execution.interception import ActiveEngine
from amanda._operators.operator import Execution, Operator
from amanda._plans.engine import Engine
from amanda._plans.plan import Plan

Tensors: TypeAlias = Sequence[Any]


@dataclass(eq=False)
class Call(abc.ABC):
    """A call is one execution of an operator, carried out as its plan says.

    :meth:`execute` and :meth:`backward` hold the order of what runs, what the backward sees, and
    where gradients pass straight through: ``docs/semantics.md#s1-order`` and ``#s3-gradients``.

    Attributes:
        run: runs the operator on inputs that it is given.
        saw: what it runs on, with what routines before it returned; None ahead of these.
    """

    engine: Engine
    operator: Operator
    inputs: Tensors
    input_names: Sequence[str]
    attrs: Mapping[str, Any]
    run: Callable[[Tensors], Tensors]
    saw: Tensors | None = field(default=None, kw_only=True)

    # What the framework does

    @abc.abstractmethod
    def run_watched(self, inputs: Tensors) -> Tensors:
        """Run it, and have its backward call :meth:`backward`."""

    @abc.abstractmethod
    def straight_through(self, original: Any, substitute: Any) -> Any:
        """Return the substitute, with its gradient passing straight to the original."""

    def run_action(
        self, action: Action, given: Tensors, like: Tensors, operator: Operator, forward: Forward
    ) -> Tensors:
        """Run the routine of an action, as :meth:`Action.run` does, at an operator or a backward
        operator."""
        return self.engine.run([action], given, operator, like=like, forward=forward)

    # What every driver does with that

    @property
    def active(self) -> ActiveEngine:
        """Return what the driver's threads run under, which is paused while any of this runs."""
        return self.engine.driver.active

    def shown(self, **known: Any) -> Execution:
        """Return what the analysis routines see of it, with what else is known."""
        return Execution(self.operator, self.inputs, self.input_names, self.attrs, **known)

    def execute(self) -> Tensors:
        """Run it under its plan, which is made when there is none."""
        with self.active.paused():
            plan = self.engine.plan(self.operator) or self.engine.analyze(self.shown())
            if plan.pending:
                # It runs once for the tools to see its outputs, and then as they decide.
                plan = self.engine.complete(plan, self.shown(outputs=self.run(self.inputs)))
            return self.run(self.inputs) if plan.is_noop else self.carry_out(plan)

    def carry_out(self, plan: Plan) -> Tensors:
        """Run what a plan lists around the operator, and the operator."""
        forward = Forward(given=self.inputs)
        given = self.substituted(plan.before, self.inputs, self.operator, forward)
        self.saw = forward.inputs = given
        watched = plan.backward or plan.gradient
        outputs = self.run_watched(given) if watched else self.run(given)
        forward.outputs = outputs
        if plan.replace is not None:  # the original has run, since its gradient stays

            def original(tensors: Tensors) -> Tensors:
                same = all(new is old for new, old in zip(tensors, given, strict=True))
                return ran if same else self.run(tensors)

            ran, forward.run = outputs, original
            outputs = self.substituted([plan.replace], given, self.operator, forward, outputs)
        return self.substituted(plan.after, outputs, self.operator, forward)

    def backward(
        self,
        backward_operator: Operator,
        grads: Tensors,
        outputs: Tensors,
        run: Callable[[Tensors], Tensors],
    ) -> Tensors:
        """Compute the gradients of its inputs as the tools want them.

        Args:
            backward_operator: the one operator that computes them.
            grads: the gradients of its outputs, None where none flows.
            outputs: what the operator itself gave.
            run: computes the gradients of the inputs.
        """
        engine, live = self.engine, self.engine.live
        # No tools are active, or it runs inside a routine; or its own scope was left.
        if self.active.engine is None or not engine.open:
            return run(grads)
        with self.active.paused():
            shown = functools.partial(self.shown, outputs=outputs)
            # The gradient of the operator as a whole lies around its backward operator.
            whole = engine.gradient_plan(shown(grad_outputs=grads, grad_inputs=lambda: run(grads)))
            saw = self.inputs if self.saw is None else self.saw
            forward = Forward(saw, self.inputs, outputs)
            grads = self.substituted(live(whole.before), grads, self.operator, forward)
            shown = functools.partial(
                shown, backward_operator=backward_operator, grad_outputs=grads
            )
            plan = engine.backward_plan(shown())
            if plan.pending:
                plan = engine.complete(plan, shown(grad_inputs=run(grads)))
            grads = self.substituted(live(plan.before), grads, backward_operator)
            outgoing = run(grads)
            if plan.replace is not None:
                replacing = live((plan.replace,))
                outgoing = self.substituted(replacing, grads, backward_operator, like=outgoing)
            outgoing = self.substituted(live(plan.after), outgoing, backward_operator)
            return self.substituted(live(whole.after), outgoing, self.operator, forward)

    def substituted(
        self,
        actions: Sequence[Action],
        given: Tensors,
        operator: Operator,
        forward: Forward = NOTHING,
        like: Tensors | None = None,
    ) -> Tensors:
        """Run routines on tensors, and link what they return to what it stands for.

        Args:
            actions: what is run, one after the other.
            given: what the first may select from, and the next ones in its place.
            operator: the operator, or backward operator, at which they run.
            forward: what routines may ask for of the forward side.
            like: what the results of a replacement stand for; ``given`` for all others.
        """
        tensors = given if like is None else like
        for action in actions:
            seen = tensors if like is None else given
            found = self.run_action(action, seen, tensors, operator, forward)
            if not action.differentiable:
                found = [
                    new if old is None or new is old else self.straight_through(old, new)
                    for old, new in zip(tensors, found, strict=True)
                ]
            tensors = found
        return tensors


class StagedCall(Call):
    """A staged call is an execution that may run on placeholders, while a function is staged.

    Pure routines are called then, and become part of what is staged. All others are called back by
    it at each of its executions.
    """

    @abc.abstractmethod
    def is_staged(self, tensors: Tensors) -> bool:
        """Tell whether a routine that takes these tensors has to wait for what is staged to run."""

    @abc.abstractmethod
    def call_back(self, call: Callable[..., Tensors], given: Tensors, like: Tensors) -> Tensors:
        """Have what is staged call a function at each of its executions.

        Args:
            call: takes what the placeholders ``given`` stand for, and gives what those in ``like``
                do. It runs the code of tools, and raises their errors; where the runtime loses
                one, :meth:`raise_failure` has it.
            given: the placeholders that it is called with.
            like: what its results are like; empty if nothing that is computed may wait for it.

        Returns:
            placeholders for its results.
        """

    def run_action(
        self, action: Action, given: Tensors, like: Tensors, operator: Operator, forward: Forward
    ) -> Tensors:
        """Run the routine of an action, now or at each execution of what is staged."""
        run, asked = super().run_action, action.asks(given, forward)
        placed = (*given, *like, *asked.values())
        tensors = [tensor for tensor in placed if tensor is not None]
        if action.pure or not self.is_staged(tensors):
            return run(action, given, like, operator, forward)
        if action.differentiable:
            raise self.refused(action, operator, "differentiated in what is staged")

        wanted = [] if action.observes else [tensor for tensor in like if tensor is not None]
        asks = tuple(asked)  # which is kept with the program, not the placeholders

        def called_back(*concrete: Any) -> Tensors:
            """Run the routine on what placeholders stand for, in an execution of the program."""
            rest = iter(concrete)
            now_given = [None if placeholder is None else next(rest) for placeholder in given]
            now_like = [None if placeholder is None else next(rest) for placeholder in like]
            now_forward = Forward.of(dict(zip(asks, rest, strict=True)), self.run)
            try:
                found = run(action, now_given, now_like, operator, now_forward)
                for placeholder, result in zip(like, found, strict=True):
                    if placeholder is None and result is not None:
                        reason = "gave a gradient where none flowed when this was staged"
                        raise action.error(reason, operator)
            except AmandaError as error:
                self.engine.failure = error
                raise
            return [] if action.observes else [result for result in found if result is not None]

        results = iter(self.call_back(called_back, tensors, wanted))
        return like if action.observes else [t if t is None else next(results) for t in like]

    @staticmethod
    def raise_failure(engine: Engine) -> None:
        """Raise the error of a routine that was called back, once; nothing if there is none."""
        failure, engine.failure = engine.failure, None
        if failure is not None:
            raise failure from failure.__cause__

    def refused(self, action: Action, operator: Operator, what: str) -> UnsupportedError:
        """Return the error for a host routine with which something cannot be done."""
        return UnsupportedError(
            f"{action.tool.name}: a routine of {operator.named} cannot be {what}, since it runs on "
            "the host; insert it with pure=True if it is a function of tensors"
        )
