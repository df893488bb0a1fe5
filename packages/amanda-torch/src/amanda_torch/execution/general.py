"""Any plan is carried out at any operator: one that writes, is replaced, or has a gradient."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from amanda import RoutineError, UnsupportedError
from amanda.driving import NOTHING, Forward
from torch import Tensor

from amanda_torch.backward.arrivals import order_of
from amanda_torch.backward.asked import copied, written
from amanda_torch.backward.gradient import Gradient
from amanda_torch.backward.module_watch import ModuleWatch
from amanda_torch.backward.watch import UNWATCHED, Unwatched, Watch
from amanda_torch.execution.call import OPERATOR_ERRORS, Call
from amanda_torch.execution.inplace import Destinations, Nowhere
from amanda_torch.execution.originals import Rerun
from amanda_torch.execution.routines import Routines, constant, unrecorded
from amanda_torch.frames import not_a_call_site
from amanda_torch.operators.higher_order import refuse_substitution, warn_of_gradient
from amanda_torch.overrides import keeping_classes, with_overrides
from amanda_torch.tensors.straight import (
    carries_gradient,
    has_graph,
    is_below_autograd,
    records_tangents,
)
from amanda_torch.tensors.substitutes import incompatible, stops_gradient
from amanda_torch.tracing import is_tracing
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda import Operator
    from amanda.driving import Action, Engine, Execution, Plan

    from amanda_torch.backward.asked import Kept
    from amanda_torch.execution.originals import Original, Result
    from amanda_torch.operators.signature import Args, Kwargs
    from amanda_torch.operators.targets import Form
    from amanda_torch.places.identity import Identity


class Given(NamedTuple):
    """This is what an operator is run on: the inputs with what routines have returned.

    Attributes:
        substituted: these themselves.
        to_original: what the operator is given for them, where it writes or is watched.
    """

    substituted: Sequence[Tensor]
    to_original: Sequence[Tensor]


@not_a_call_site
class General:
    """This carries out any plan at any operator.

    Around the operator lie, from the outside in: the routines before and after it, the tensors of
    the program that it writes to, and what watches its gradient.
    """

    def __init__(self, plan: Plan, form: Form, identity: Identity) -> None:
        self._plan = plan
        self._form = form
        self._identity = identity
        self._before = Routines(plan.before, form.from_python)
        self._before_asks = any(a.asked for a in plan.before)
        self._nowhere = Nowhere(form.signature)
        self._after = Routines(plan.after, form.from_python)
        # Whether results are computed anew, and whether they may become others than those that
        # the operator has saved for its backward.
        self._redone = plan.replace is not None or any(a.differentiable for a in plan.after)
        self._rewritten = bool(plan.pending) or not all(a.observes for a in plan.after)
        # Whether a routine after the operator may ask for what that has written to.
        self._asks = bool(plan.pending) or any(a.asked for a in plan.after)

    def run(self, engine: Engine, operator: Operator, args: Args, kwargs: Kwargs) -> Any:
        """Carry out the plan at one execution."""
        call = Call(engine, self._identity, operator, self._form, args, kwargs)
        inputs = call.inputs()
        # a module has parameters, whatever it is given
        tracked = _is_recording() if self._plan.whole is not None else is_tracked(inputs)
        return self.run_call(call, inputs, tracked)

    def run_call(self, call: Call, inputs: Sequence[Tensor], tracked: bool) -> Any:
        """Carry out the plan at one execution.

        Args:
            call: the execution.
            inputs: what the program gives it.
            tracked: whether it has a gradient.
        """
        plan, signature, operator = self._plan, self._form.signature, call.operator
        if is_tracing(inputs):
            return call.run(plan.inside)
        _check(plan, operator)
        destinations = self._destinations(call, inputs, tracked)
        if tracked and destinations.refused():
            return call.run(plan.inside)

        known_before = Forward(given=inputs) if self._before_asks else NOTHING
        substituted = self._before.run(inputs, operator, known_before)
        has_backward = tracked and self._has_backward(inputs)
        watch = self._watch(plan, call, inputs) if has_backward else UNWATCHED
        forward = self._forward(call, inputs, substituted, watch.kept)
        given = watch.enter(destinations.give(substituted))

        def original(tensors: Sequence[Tensor]) -> Result:
            result = call.run(plan.inside, None if tensors is inputs else tensors)
            outputs = destinations.results(signature.outputs_of(result), tensors)
            watch.gave(outputs)
            return result, outputs

        try:
            with destinations.watched():
                unchanged: Sequence[Tensor] | None = None
                if plan.replace is None:
                    result, outputs = _run_watched(original, given, watch)
                    unchanged = outputs
                else:
                    replace = _replace_tracked if tracked else _replace
                    both = Given(substituted, given)
                    result, outputs = replace(plan.replace, call, both, original, destinations)
        except OPERATOR_ERRORS as error:
            call.blame(error, () if substituted is inputs else plan.before)
            raise

        shown = functools.partial(call.shown, inputs)
        after = self._after
        if plan.pending:
            names = signature.output_names(result)
            with unshown():
                known = shown([keeping_classes(Tensor.detach, t) for t in outputs], names)
            plan = _completed(plan, call, known)
            after = Routines(plan.after, self._form.from_python)
            watch.complete(plan)
            if tracked and watch is UNWATCHED:  # that of a module is decided only now
                watch = self._watch(plan, call, inputs)
                if watch.kept is not None:
                    watch.kept.keep(inputs=substituted, given=inputs)
                if watch is not UNWATCHED:
                    watch.enter(given)
                    watch.gave(outputs)
        outputs = watch.leave(outputs, shown)
        finished = after.run(outputs, operator, forward)
        watch.done(shown)
        finished = destinations.write(
            finished, watch.bounded, functools.partial(_misfit, plan, operator)
        )
        return result if finished is unchanged else signature.with_outputs(result, finished)

    def _forward(
        self,
        call: Call,
        inputs: Sequence[Tensor],
        substituted: Sequence[Tensor],
        kept: Kept | None,
    ) -> Forward:
        """Return what routines may ask for of the inputs, some of which may be written to now.

        Args:
            call: the execution.
            inputs: what the program gives.
            substituted: the same with what routines have returned.
            kept: what keeps them for routines on the gradient, if there are any.
        """
        keeps = kept is not None and (kept.wants("inputs") or kept.wants("given"))
        if not (self._asks or keeps):
            return NOTHING
        places = written(self._form.signature, call.args, inputs)
        saw = copied(substituted, places)
        gave = saw if substituted is inputs else copied(inputs, places)
        if kept is not None:
            kept.keep(inputs=saw, given=gave)
        return Forward(saw, gave)

    def _destinations(self, call: Call, inputs: Sequence[Tensor], tracked: bool) -> Nowhere:
        """Return where the operator writes."""
        signature = self._form.signature
        if not signature.writes:
            return self._nowhere
        redone, rewritten = tracked and self._redone, tracked and self._rewritten
        return Destinations(signature, inputs, call.args, call.kwargs, redone, rewritten)

    def _has_backward(self, inputs: Sequence[Tensor]) -> bool:
        """Tell whether a backward pass may come, of what has a gradient in either mode."""
        if not records_tangents() or self._plan.whole is not None:
            return True
        return any(map(has_graph, inputs))

    def _order(self, call: Call, inputs: Sequence[Tensor], known: Plan | None) -> Sequence[int]:
        """Return the order in which gradients go on to leaves through a boundary, if known.

        Args:
            call: the execution.
            inputs: what the program gives it.
            known: what to do at its gradient, None when that is still to be analyzed.
        """
        if sum(t.requires_grad and t.is_leaf for t in inputs) < 2:
            return ()
        signature = self._form.signature
        if signature.opaque or signature.written or signature.out or not signature.can_be_bounded:
            return ()
        if not (signature.repeatable_on_copies or signature.draws) or call.has_generator():
            return ()
        if known is not None and (known.only_looks or not known.after):
            return ()
        given = signature.settings(call.args, call.kwargs, self._form.numeric)
        kind = call.operator.type, None if given is None else given[0]
        return order_of(kind, inputs, call.run_with_gradient, bool(signature.state))

    def _watch(self, plan: Plan, call: Call, inputs: Sequence[Tensor]) -> Unwatched:
        """Return what is to see the operator's gradient."""
        engine, operator, signature = call.engine, call.operator, self._form.signature
        if plan.whole is not None:  # of a module
            if not plan.gradient:
                return UNWATCHED
            return ModuleWatch(Gradient(engine, operator, plan.whole, bool(plan.pending)))
        if not signature.has_gradient:  # it may keep what it is given in an object
            return UNWATCHED
        gradient = None
        if plan.gradient:
            known = engine.known_gradient_plan(operator)
            if known is None or not known.is_noop:
                order = self._order(call, inputs, known)
                gradient = Gradient(engine, operator, known, order=order)
        if gradient is None and not plan.backward:
            return UNWATCHED
        return Watch(
            engine,
            self._identity.contexts.numbering,
            operator,
            gradient,
            bounded=signature.can_be_bounded,
            writes=signature.writes,
            backward=plan.backward,
        )


def _check(plan: Plan, operator: Operator) -> None:
    """Raise the error for what cannot be done, before anything runs."""
    if plan.replace is not None:
        refuse_substitution((plan.replace,), operator)
    if plan.backward or plan.gradient:
        warn_of_gradient(operator)


def is_tracked(tensors: Sequence[Tensor]) -> bool:
    """Tell whether what is computed from tensors has a gradient, in either mode."""
    return _is_recording() and any(map(carries_gradient, tensors))


def _is_recording() -> bool:
    """Tell whether gradients are computed, in either mode."""
    return (torch.is_grad_enabled() and not is_below_autograd()) or records_tangents()


@not_a_call_site
def _run_watched(original: Original, given: Sequence[Tensor], watch: Unwatched) -> Result:
    """Return the result of an operator whose gradient may be watched."""
    result, outputs = original(given)
    if watch.passes(outputs):
        return original(watch.without_boundary())
    return result, outputs


@not_a_call_site
def _replace_tracked(
    action: Action, call: Call, given: Given, original: Original, destinations: Nowhere
) -> Result:
    """Return a replacement's result, with the original's gradient unless it has its own."""
    if action.differentiable:
        return _replace(action, call, given, original, destinations)
    rerun = Rerun(call, given.substituted, original, given.to_original)
    forward = Forward(run=rerun)
    returned = unrecorded(with_overrides, action.call, given.substituted, call.operator, forward)
    result, outputs = original(given.to_original) if rerun.ran is None else rerun.ran
    found = unrecorded(action.substituted, returned, outputs, call.operator, stops_gradient)
    return result, outputs if found is outputs else constant(outputs, found)


@not_a_call_site
def _replace(
    action: Action, call: Call, given: Given, original: Original, destinations: Nowhere
) -> Result:
    """Return a replacement's result; the original is run if what it returns is needed.

    Args:
        action: the replacement.
        call: the execution.
        given: what both are run on.
        original: runs the original.
        destinations: where that writes.
    """
    operator, signature = call.operator, call.form.signature
    inputs = given.to_original if action.differentiable else given.substituted
    rerun = Rerun(call, inputs, None, given.to_original)
    returned = with_overrides(action.call, inputs, operator, Forward(run=rerun))
    values = returned if isinstance(returned, (tuple, list)) else (returned,)
    whole = signature.returns_tensors and not any(value is None for value in values)
    if signature.reshapes or not whole:
        # what runs once is not run again to see how its results are packed
        ran = None if signature.repeatable or signature.reshapes else rerun.ran_otherwise
        result, outputs = original(given.to_original) if ran is None else ran
        return result, action.substituted(returned, outputs, operator, incompatible)
    if destinations.count is not None:
        action.substitutes(returned, destinations.count, operator)
    for value in values:
        if not isinstance(value, Tensor):
            raise action.error(f"returned {type(value).__name__}, not a tensor", operator)
    return signature.result(values), values


def _completed(plan: Plan, call: Call, execution: Execution) -> Plan:
    """Return the plan with what pending analyses decide, now that the operator has run."""
    completed = with_overrides(call.engine.complete, plan, execution)
    before = () if plan.whole is None else plan.whole.after
    ahead = completed.whole is not None and completed.whole.after != before
    if completed.before != plan.before or completed.replace is not plan.replace or ahead:
        raise UnsupportedError(
            f"{call.operator.named}: an analysis with require_outputs=True inserted before or "
            "instead of an operator that cannot be run a second time, or on the gradients of its "
            "inputs; insert after it, or analyze without outputs"
        )
    return completed


def _misfit(plan: Plan, operator: Operator, reason: str) -> RoutineError:
    """Return the error of the last routine whose substitute cannot be written where it should."""
    replaced = () if plan.replace is None else (plan.replace,)
    actions: Sequence[Action] = (*plan.before, *replaced, *plan.after)
    return actions[-1].error(reason, operator)
