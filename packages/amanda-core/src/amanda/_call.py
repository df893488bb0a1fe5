"""Carrying out plans call by call, for drivers whose framework runs operators one by one."""

from __future__ import annotations

import abc
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amanda._operator import Execution

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amanda._action import Action
    from amanda._engine import Engine
    from amanda._operator import Operator

    Tensors = Sequence[Any]


@dataclass(eq=False)
class Call(abc.ABC):
    """One execution of an operator, carried out as its plan says.

    Its methods that are not abstract hold S1 and S3: the order of what runs, what the backward
    sees, and where gradients pass straight through. A driver calls them with interception paused.

    Attributes:
        run: runs the operator on inputs that it is given.
    """

    engine: Engine
    operator: Operator
    inputs: Tensors
    input_names: Sequence[str]
    attrs: Mapping[str, Any]
    run: Callable[[Tensors], Tensors]

    # What the framework does

    @abc.abstractmethod
    def run_watched(self, inputs: Tensors) -> Tensors:
        """Run it, and have its backward call :meth:`backward`."""

    @abc.abstractmethod
    def straight_through(self, original: Any, substitute: Any) -> Any:
        """The substitute, with its gradient passing to the original."""

    def run_action(
        self, action: Action, given: Tensors, like: Tensors, operator: Operator
    ) -> Tensors:
        """Run the routine of an action.

        Args:
            action: what is run.
            given: what it may select from.
            like: what its results stand for: the outputs for a replacement, else ``given``.
            operator: the operator, or backward operator, at which it runs.

        Returns:
            ``like``, with what was returned in the places of what it stands for.
        """
        return self.engine.run([action], given, operator, like=like)

    # What every driver does with that

    def shown(self, **known: Any) -> Execution:
        """What the analysis routines see of it, with what else is known."""
        return Execution(self.operator, self.inputs, self.input_names, self.attrs, **known)

    def execute(self) -> Tensors:
        """Run it under its plan, which is made when there is none."""
        engine, operator = self.engine, self.operator
        plan = engine.plan(operator) or engine.analyze(self.shown())
        if plan.pending:
            # It runs once for the tools to see its outputs, and then as they decide.
            plan = engine.complete(plan, self.shown(outputs=self.run(self.inputs)))
        if plan.is_noop:
            return self.run(self.inputs)
        given = self._substituted(plan.before, self.inputs)
        watched = plan.backward or plan.gradient
        outputs = self.run_watched(given) if watched else self.run(given)
        if plan.replace is not None:  # the original's gradient stays
            replaced = self.run_action(plan.replace, given, outputs, operator)
            outputs = self._linked(plan.replace, outputs, replaced)
        return self._substituted(plan.after, outputs)

    def backward(
        self,
        backward_operator: Operator,
        grads: Tensors,
        outputs: Tensors,
        run: Callable[[Tensors], Tensors],
    ) -> Tensors:
        """The gradients of its inputs, as the tools want them.

        Args:
            backward_operator: the one operator that computes them.
            grads: the gradients of its outputs, None where none flows.
            outputs: what the operator itself gave.
            run: computes the gradients of the inputs.
        """
        engine, operator = self.engine, self.operator
        if not engine.open:
            return run(grads)
        shown = functools.partial(self.shown, outputs=outputs)
        # The gradient of the operator as a whole lies around its backward operator.
        whole = engine.gradient_plan(shown(grad_outputs=grads, grad_inputs=lambda: run(grads)))
        grads = self._run_live(whole.before, grads, operator)

        shown = functools.partial(shown, backward_operator=backward_operator, grad_outputs=grads)
        plan = engine.backward_plan(shown())
        if plan.pending:
            plan = engine.complete(plan, shown(grad_inputs=run(grads)))
        grads = self._run_live(plan.before, grads, backward_operator)
        outgoing = run(grads)
        if plan.replace is not None and engine.live((plan.replace,)):
            replaced = self.run_action(plan.replace, grads, outgoing, backward_operator)
            outgoing = self._linked(plan.replace, outgoing, replaced)
        outgoing = self._run_live(plan.after, outgoing, backward_operator)
        return self._run_live(whole.after, outgoing, operator)

    def _substituted(self, actions: Sequence[Action], tensors: Tensors) -> Tensors:
        """Run actions around the operator, one by one to link what each returns."""
        for action in actions:
            found = self.run_action(action, tensors, tensors, self.operator)
            tensors = self._linked(action, tensors, found)
        return tensors

    def _linked(self, action: Action, originals: Tensors, substitutes: Tensors) -> Tensors:
        if action.differentiable:
            return substitutes
        return [
            substitute
            if original is None or substitute is original
            else self.straight_through(original, substitute)
            for original, substitute in zip(originals, substitutes, strict=True)
        ]

    def _run_live(self, actions: tuple[Action, ...], grads: Tensors, operator: Operator) -> Tensors:
        """Run actions around a backward operator, without those whose scope has been left."""
        for action in self.engine.live(actions):
            found = self.run_action(action, grads, grads, operator)
            grads = self._linked(action, grads, found)
        return grads
