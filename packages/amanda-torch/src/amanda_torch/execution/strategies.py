"""Each plan is carried out by the least that it needs, chosen once per plan and form.

Core's ``Call`` states the same order for frameworks whose operators return new tensors and are
differentiated by whoever runs them. Here an operator may write to what it is given, autograd sees
its gradient from outside, and an operator that nobody does anything at must cost next to nothing:
carried out by ``Call``, routines around a small ``linear`` add 1.2 to 1.7 times as much.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from amanda_torch._internals import (
    count_modes,
    is_jit_tracing,
    sequence_number,
    transforms_active,
)
from amanda_torch.backward.edges import come_twice
from amanda_torch.backward.gradient import Gradient
from amanda_torch.execution.call import OPERATOR_ERRORS, Call, run_inside
from amanda_torch.execution.general import General, is_tracked
from amanda_torch.execution.lineage import traced
from amanda_torch.execution.routines import Routines
from amanda_torch.frames import not_a_call_site
from amanda_torch.tensors.straight import records_tangents
from amanda_torch.thread import local
from amanda_torch.tracing import is_tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda import Operator
    from amanda.driving import Engine, Plan
    from torch import Tensor

    from amanda_torch.execution.call import Strategy
    from amanda_torch.operators.signature import Args, Kwargs
    from amanda_torch.operators.targets import Form
    from amanda_torch.places.identity import Identity

    # Has the gradient of an execution looked at, and gives its outputs as they are passed on: it is
    # given the active tools, the operator, what ``sequence_number()`` gave before it ran, its
    # inputs and its outputs.
    Look = Callable[[Engine, Operator, int, Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]


def strategy_of(plan: Plan, form: Form, identity: Identity) -> Strategy | None:
    """Return what carries out a plan at an operator that is given its arguments in a form.

    None where that may simply run.
    """
    found = _strategy_of(plan, form, identity)
    return traced(plan, found, form) if plan.producers and found is not None else found


def _strategy_of(plan: Plan, form: Form, identity: Identity) -> Strategy | None:
    signature = form.signature
    if plan.is_noop:
        return None if plan.inside is None else _looking_inside(plan.inside, form)
    if plan.pending and signature.repeatable:
        return _pending(plan, form, identity)
    # A module has parameters, and may so have a gradient whatever it is given.
    of_module = plan.gradient and plan.whole is not None
    if signature.writes or plan.replace or plan.pending or plan.asked or of_module:
        return General(plan, form, identity).run
    if plan.backward or plan.gradient:
        return _looking_back(plan, form, identity)
    return _around(plan, form, identity)


@not_a_call_site
def _looking_inside(inside: Engine, form: Form) -> Strategy:
    """Make what runs an operator that tools leave alone, but may look inside."""

    def carry_out(engine: Engine, operator: Operator, args: Args, kwargs: Kwargs) -> Any:
        return run_inside(inside, form, args, kwargs)

    return carry_out


@not_a_call_site
def _around(plan: Plan, form: Form, identity: Identity, look: Look | None = None) -> Strategy:
    """Make what runs routines around an operator that writes nowhere: the common case.

    ``look``, if given, has its gradient looked at.
    """
    before = Routines(plan.before, form.from_python).run if plan.before else None
    after = Routines(plan.after, form.from_python).run if plan.after else None
    inside, pick, signature = plan.inside, form.pick, form.signature
    outputs_of = signature.outputs_of
    run = form.run if inside is None else functools.partial(_run_inside, inside, form)

    def carry_out(engine: Engine, operator: Operator, args: Args, kwargs: Kwargs) -> Any:
        inputs = form.tensors(args, kwargs) if pick is None else pick(args)
        if (pick is None or count_modes() or is_jit_tracing()) and is_tracing(inputs):
            return run(*args, **kwargs)
        given = inputs if before is None else before(inputs, operator)
        number = 0 if look is None else sequence_number()
        if given is inputs:
            result = run(*args, **kwargs)
        else:
            try:
                new_args, new_kwargs = form.with_tensors(args, kwargs, given)
                result = run(*new_args, **new_kwargs)
            except OPERATOR_ERRORS as error:
                call = Call(engine, identity, operator, form, args, kwargs)
                call.blame(error, plan.before)
                raise
        if after is None and look is None:
            return result
        outputs = outputs_of(result)
        finished: Sequence[Tensor] = outputs
        if look is not None:
            finished = look(engine, operator, number, given, outputs)
        if after is not None:
            finished = after(finished, operator)
        return result if finished is outputs else signature.with_outputs(result, finished)

    return carry_out


@not_a_call_site
def _run_inside(inside: Engine, form: Form, *args: Any, **kwargs: Any) -> Any:
    return run_inside(inside, form, args, kwargs)


@not_a_call_site
def _looking_back(plan: Plan, form: Form, identity: Identity) -> Strategy:
    """Make what watches the gradient of an operator that writes nowhere, where it has one."""
    watched = General(plan, form, identity)
    unwatched = _around(plan, form, identity)
    bounded = form.signature.can_be_bounded

    def look(
        engine: Engine,
        operator: Operator,
        number: int,
        given: Sequence[Tensor],
        outputs: Sequence[Tensor],
    ) -> Sequence[Tensor]:
        gradient = Gradient(engine, operator, engine.known_gradient_plan(operator))
        return gradient.look(number, given, outputs, bounded)

    looking = _around(plan, form, identity, look)

    def carry_out(engine: Engine, operator: Operator, args: Args, kwargs: Kwargs) -> Any:
        # Where a gradient is derived from functions, what runs in them may not show that it has it.
        derived = local.thread.derived is not None
        inputs = form.tensors(args, kwargs)
        tracked = is_tracked(inputs)
        if not (derived or tracked):
            return unwatched(engine, operator, args, kwargs)
        known = None if derived or plan.backward else engine.known_gradient_plan(operator)
        if (
            known is not None
            and known.only_looks
            and not (known.asked or transforms_active() or records_tangents())
            and not come_twice(inputs)
        ):
            return looking(engine, operator, args, kwargs)
        call = Call(engine, identity, operator, form, args, kwargs)
        return watched.run_call(call, inputs, tracked)

    return carry_out


@not_a_call_site
def _pending(plan: Plan, form: Form, identity: Identity) -> Strategy:
    """Make what runs an operator to analyze its outputs, and once more as is then decided."""

    def carry_out(engine: Engine, operator: Operator, args: Args, kwargs: Kwargs) -> Any:
        call = Call(engine, identity, operator, form, args, kwargs)
        inputs = call.inputs()
        if is_tracing(inputs):
            return call.run(plan.inside)
        completed = engine.complete(plan, call.shown(inputs, call.run_to_see()))
        run = _strategy_of(completed, form, identity)
        if run is None:
            return form.run(*args, **kwargs)
        return run(engine, operator, args, kwargs)

    return carry_out
