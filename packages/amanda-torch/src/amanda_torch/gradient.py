"""The gradient of an operator as a whole, however many autograd nodes compute it.

The operator is put between two boundaries, identities in the autograd graph: the one after it
sees the gradients of its outputs, all at once, and the one ahead of it the gradients that this
operator alone sends to its inputs. What only looks at memory (a view) must stay linked to the
tensor that it looks at, since a program may write through it; there, hooks on the autograd nodes
see the same gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from amanda_torch.backward import in_force, nodes_between, run_on_gradients
from amanda_torch.signature import outputs_of
from amanda_torch.straight import straight_through
from amanda_torch.thread import local

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda import Operator
    from amanda.context import Execution
    from amanda.engine import Engine, GradientPlan

    Grads = Sequence[Tensor | None]


class Gradient:
    """Watches the gradient of one execution.

    What hangs on the boundary ahead of the operator keeps nothing that has a graph, and what
    hangs on the one after it only what lies ahead of it, so that there is no cycle.

    Args:
        engine: the tools that want it.
        operator: the operator.
        plan: what to do, None when that is still to be analyzed.
    """

    def __init__(self, engine: Engine, operator: Operator, plan: GradientPlan | None) -> None:
        self._engine = engine
        self._operator = operator
        self._plan = plan

    def enter(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """The inputs behind the boundary ahead of the operator."""
        return straight_through(inputs, inputs, self._on_inputs)

    def leave(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        shown: Callable[..., Execution],
    ) -> Sequence[Tensor]:
        """The outputs behind the boundary after the operator.

        Args:
            inputs: what :meth:`enter` gave.
            outputs: what the operator made of them.
            shown: shows the execution for analysis.
        """
        execution = self._execution(shown, outputs)
        if execution is None:
            return straight_through(outputs, outputs, self._on_outputs)

        def analyzed(grads: Grads) -> Grads:
            execution.grad_inputs = lambda: _grad_inputs(outputs, inputs, grads)
            return self._on_outputs(grads, execution)

        return straight_through(outputs, outputs, analyzed)

    def hook(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        shown: Callable[..., Execution],
        run: Callable[[Sequence[Tensor]], Any],
    ) -> None:
        """Watch without boundaries an operator that gives views of one tensor.

        Args:
            inputs: what the operator was given.
            outputs: what it returned.
            shown: shows the execution for analysis.
            run: runs the operator on other inputs.
        """
        nodes = nodes_between([t.grad_fn for t in inputs], [t.grad_fn for t in outputs])
        if not nodes:
            return  # it returned its input
        first, last = nodes[0], nodes[-1]
        places = [t.output_nr if t.grad_fn is first else None for t in outputs]
        source = next(i for i, t in enumerate(inputs) if t.requires_grad)
        number = len(inputs)
        execution = self._execution(shown, outputs)

        def before(grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
            seen = [None if place is None else grads[place] for place in places]
            if execution is not None:
                execution.grad_inputs = lambda: _grad_inputs_again(
                    [t.requires_grad_(i == source) for i, t in enumerate(execution.inputs)],
                    run,
                    seen,
                )
            passed = list(grads)
            for place, grad in zip(places, self._on_outputs(seen, execution), strict=True):
                if place is not None:
                    passed[place] = grad
            return tuple(passed)

        def after(grads: tuple[Tensor | None, ...], _: Any) -> tuple[Tensor | None, ...]:
            seen: list[Tensor | None] = [None] * number
            seen[source] = grads[0]
            return (self._on_inputs(seen)[source], *grads[1:])

        first.register_prehook(before)
        last.register_hook(after)

    def _execution(
        self, shown: Callable[..., Execution], outputs: Sequence[Tensor]
    ) -> Execution | None:
        if self._plan is not None:
            return None
        execution = shown([t.detach() for t in outputs])
        execution.inputs = [t.detach() for t in execution.inputs]
        return execution

    def _on_outputs(self, grads: Grads, execution: Execution | None = None) -> Grads:
        if not in_force(self._engine):
            return grads
        if self._plan is None:
            assert execution is not None
            execution.grad_outputs = grads
            self._plan = self._engine.gradient_plan(execution)
        return run_on_gradients(self._engine, self._plan.on_outputs, grads, self._operator)

    def _on_inputs(self, grads: Grads) -> Grads:
        if self._plan is None or not in_force(self._engine):
            return grads
        return run_on_gradients(self._engine, self._plan.on_inputs, grads, self._operator)


def _grad_inputs(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], grads: Grads
) -> list[Tensor | None]:
    """The operator's gradients of its inputs, for the gradients of its outputs that come in."""
    wanted = [i for i, t in enumerate(inputs) if t.requires_grad]
    flowing = [i for i, g in enumerate(grads) if g is not None]
    probing, local.thread.probing = local.thread.probing, True
    try:
        found = torch.autograd.grad(
            [outputs[i] for i in flowing],
            [inputs[i] for i in wanted],
            [grads[i] for i in flowing],
            retain_graph=True,
            allow_unused=True,
        )
    finally:
        local.thread.probing = probing
    result: list[Tensor | None] = [None] * len(inputs)
    for i, grad in zip(wanted, found, strict=True):
        result[i] = grad
    return result


def _grad_inputs_again(
    inputs: Sequence[Tensor], run: Callable[[Sequence[Tensor]], Any], grads: Grads
) -> list[Tensor | None]:
    with torch.enable_grad():
        outputs = outputs_of(run(inputs))
    return _grad_inputs(outputs, inputs, grads)
