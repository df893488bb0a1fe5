"""Tools see the gradient of an operator as a whole, however many autograd nodes compute it.

The operator is put between two boundaries, identities in the autograd graph: the one after it
sees the gradients of its outputs, all at once, and the one ahead of it the gradients that this
operator alone sends to its inputs. Where routines only look, the nodes that send them are hooked
instead of a boundary ahead. What shares the memory of an input (a view) must stay linked
to it, since a program may write through it; there, hooks on the autograd nodes see the same
gradients.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from amanda.driving import NOTHING

from amanda_torch._internals import current_node, share_memory, transforms_active
from amanda_torch.backward.asked import Kept
from amanda_torch.backward.edges import edges
from amanda_torch.backward.input_gradients import grad_inputs_of
from amanda_torch.backward.later_passes import Passes, flows
from amanda_torch.backward.nodes import is_active, made_since, run_on_gradients
from amanda_torch.backward.senders import Senders
from amanda_torch.backward.view_gradients import WayOut, hook_inputs, hook_outputs
from amanda_torch.tensors.batches import Batches
from amanda_torch.tensors.straight import in_graph, watched
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda import Operator
    from amanda.driving import Action, Engine, Execution, Plan
    from torch import Tensor
    from torch.autograd.graph import GradientEdge

    Grads = Sequence[Tensor | None]


class Gradient:
    """This watches the gradient of one execution.

    What hangs on the boundary ahead of the operator keeps nothing that has a graph, and what
    hangs on the one after it only what lies ahead of it, so that there is no cycle.

    Attributes:
        kept: keeps what routines ask for; None where they ask for nothing.
        looks_ahead: whether anybody may look at what the operator sends to its inputs.
        only_looks: whether all who do are known only to look.
        is_bounded: whether there is a boundary ahead.

    Args:
        engine: the tools that want it.
        operator: the operator.
        plan: what to do, None when that is still to be analyzed.
        pending: whether analyses that wait for the outputs may add to the plan.
        order: that in which gradients arrive at leaves; see :func:`order_of`.
    """

    def __init__(
        self,
        engine: Engine,
        operator: Operator,
        plan: Plan | None,
        pending: bool = False,
        order: Sequence[int] = (),
    ) -> None:
        self._engine = engine
        self._operator = operator
        self.plan = plan
        self._order = order
        self.kept = (
            Kept(None if pending else plan) if pending or plan is None or plan.asked else None
        )
        self._passes = Passes()
        self.looks_ahead = plan is None or bool(plan.after)
        self.only_looks = plan is not None and plan.only_looks and not transforms_active()
        self.is_bounded = False
        self._senders: Senders | None = None
        self._is_attached = self._awaits = False

    def enter(self, inputs: Sequence[Tensor], bounded: bool = False) -> Sequence[Tensor]:
        """Return the inputs behind the boundary ahead of the operator, where there is one.

        ``bounded`` says that there has to be one, also if routines only look.
        """
        self.is_bounded = self.looks_ahead and (bounded or not self.only_looks)
        return watched(inputs, self._ahead, self._order) if self.is_bounded else inputs

    def look(
        self,
        number: int,
        given: Sequence[Tensor],
        outputs: Sequence[Tensor],
        bounded: bool,
    ) -> Sequence[Tensor]:
        """Watch an execution whose gradient is only looked at; return its outputs to pass on.

        Args:
            number: what ``sequence_number()`` gave before the operator ran.
            given: what the operator was given; no two of them come from one place.
            outputs: what it returned.
            bounded: whether that may be put behind a boundary, unless it is what was given.
        """
        if bounded and not any(share_memory(t, other) for t in outputs for other in given):
            return self.leave(number, (), given, outputs)
        plan = self.plan
        assert plan is not None
        if plan.before or not Senders(number, given).attach(outputs, self._on_inputs):
            self.hook(number, edges(given), given, outputs)
        return outputs

    def leave(
        self,
        number: int,
        inputs: Sequence[GradientEdge | None],
        given: Sequence[Tensor],
        outputs: Sequence[Tensor],
        shown: Callable[..., Execution] | None = None,
    ) -> Sequence[Tensor]:
        """Return the outputs behind the boundary after the operator.

        Args:
            number: what ``sequence_number()`` gave before the operator ran.
            inputs: the :func:`edges` of what :meth:`enter` gave, from before the operator ran,
                which may have written to them.
            given: what it gave.
            outputs: what the operator made of them.
            shown: shows the execution for analysis, if that is still to come.
        """
        execution = self._execution(shown, outputs)
        if self.looks_ahead and not self.is_bounded:
            self._senders = senders = Senders(number, given)
            self._is_attached = senders.attach(outputs, self._sent)
        batches = None
        if transforms_active():
            batches = Batches(given, outputs)
            if self.kept is not None:
                self.kept.batched_as(batches)

        def behind(grads: Grads, places: Sequence[int]) -> Grads:
            self._passes.begin()
            passed = self._on_outputs(
                execution, grads, lambda: grad_inputs_of(inputs, places, grads, batches)
            )
            self._came(inputs, places, passed, batches)
            return passed

        return watched(outputs, behind)

    def _came(
        self,
        inputs: Sequence[GradientEdge | None],
        places: Sequence[int],
        grads: Grads,
        batches: Batches | None,
    ) -> None:
        """Look at what goes to the inputs, as gradients have come to the outputs.

        The arguments are those of :func:`grad_inputs_of`.
        """
        senders = self._senders
        if senders is None:
            if self._passes.is_later and self._has_routines_ahead(grads):
                self._passes.keep(grad_inputs_of(inputs, places, grads, batches))
            return
        self._awaits = False
        senders.forget()
        if not self._has_routines_ahead(grads):
            return
        if not self._passes.is_later:
            if self._is_attached:
                self._awaits = senders.sends_all()
            else:
                self._awaits = senders.watch(current_node(), self._sent)
        if not self._awaits:
            self._on_inputs(senders.sent_alone(current_node(), places, grads))

    def _sent(self, grads: Grads) -> None:
        """Take what was sent to the inputs; not all of it may be for what came to the outputs."""
        if self._awaits:
            self._awaits = False
            self._on_inputs(grads)

    def hook(
        self,
        number: int,
        inputs: Sequence[GradientEdge | None],
        given: Sequence[Tensor],
        outputs: Sequence[Tensor],
        shown: Callable[..., Execution] | None = None,
        ahead: bool = True,
    ) -> None:
        """Watch without boundaries an operator that gives views of what it is given.

        Outputs with autograd nodes of their own get their gradients at different times: the
        routines run for each of them, with None for the others.

        Args:
            number: what ``sequence_number()`` gave before the operator ran.
            inputs: the :func:`edges` of what the operator was given, from before it ran.
            given: what that was.
            outputs: what it returned.
            shown: shows the execution for analysis, if that is still to come.
            ahead: whether to see what goes to the inputs, too.
        """
        results = [in_graph(t) for t in outputs]
        nodes = dict.fromkeys(t.grad_fn for t in results)
        made = [node for node in nodes if made_since(number, node)]
        if not made:  # it is an input that was returned
            return
        execution = self._execution(shown, outputs)
        batches = Batches(given, outputs)
        if self.kept is not None:
            self.kept.batched_as(batches)
        for node in made:
            assert node is not None
            way_out = WayOut.of(node, inputs) if ahead else None
            if ahead and way_out is None:
                continue
            if self.plan is None or self.plan.before:
                places = [t.output_nr if t.grad_fn is node else None for t in results]
                sees = functools.partial(self._on_outputs, execution)
                hook_outputs(node, places, way_out, batches, sees)
            if way_out is not None and self.looks_ahead:
                hook_inputs(node, way_out, batches, self._on_inputs)

    def _execution(
        self, shown: Callable[..., Execution] | None, outputs: Sequence[Tensor]
    ) -> Execution | None:
        if self.plan is not None:
            return None
        assert shown is not None
        with unshown():
            execution = shown([t.detach() for t in outputs])
            execution.inputs = [t.detach() for t in execution.inputs]
        return execution

    def _on_outputs(
        self, execution: Execution | None, grads: Grads, grad_inputs: Callable[[], Grads]
    ) -> Grads:
        """Run routines on the gradients of the outputs, once they are decided about.

        Args:
            execution: shown for that; None where it is done.
            grads: the gradients.
            grad_inputs: computes those of the inputs.
        """
        if self.plan is not None and not self.plan.before:
            return grads
        if not flows(grads) or not is_active(self._engine):
            return grads
        if self.plan is None:
            assert execution is not None
            execution.grad_outputs, execution.grad_inputs = grads, grad_inputs
            self.plan = self._engine.gradient_plan(execution)
            execution.grad_outputs = execution.grad_inputs = None  # they may have a graph
        return self._run(self.plan, self.plan.before, grads)

    def _has_routines_ahead(self, grads: Grads) -> bool:
        """Tell whether routines see what the operator makes of the gradients of its outputs."""
        after = self.plan is not None and self.plan.after
        return bool(after) and flows(grads) and is_active(self._engine)

    def _ahead(self, grads: Grads, places: Sequence[int]) -> Grads:
        """Return what goes on to the inputs of what comes to the boundary ahead of the operator."""
        if not self._passes.is_later:
            return self._on_inputs(grads)
        own = self._passes.take()
        return grads if own is None else self._on_inputs(grads, own)

    def _on_inputs(self, grads: Grads, own: Grads | None = None) -> Grads:
        if not self._has_routines_ahead(grads):
            return grads
        assert self.plan is not None
        return self._run(self.plan, self.plan.after, grads, own)

    def _run(
        self, plan: Plan, actions: tuple[Action, ...], grads: Grads, own: Grads | None = None
    ) -> Grads:
        kept = self.kept
        forward = NOTHING if kept is None else kept.forward(plan, self._operator)
        return run_on_gradients(self._engine, actions, grads, self._operator, forward, own)
