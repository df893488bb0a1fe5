"""Each plan is carried out by the least that it needs, chosen once per plan and form.

Core's ``Call`` states the same order for frameworks whose operators return new tensors and are
differentiated by whoever runs them. Here an operator may write to what it is given, autograd sees
its gradient from outside, and an operator that nobody does anything at must cost next to nothing:
carried out by ``Call``, routines around a small ``linear`` add 1.2 to 1.7 times as much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda_torch._internals import count_modes, is_jit_tracing
from amanda_torch.call import OPERATOR_ERRORS, Call, run_inside
from amanda_torch.frames import not_a_call_site
from amanda_torch.general import General, is_tracked
from amanda_torch.routines import Routines
from amanda_torch.thread import local
from amanda_torch.tracing import is_tracing

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda import Operator
    from amanda.driving import Engine, Plan

    from amanda_torch.identity import Identity
    from amanda_torch.signature import Args, Kwargs
    from amanda_torch.targets import Form

    # Carries out the plan that it is chosen for, at one execution: it is given the active tools,
    # the plan, the operator, the dispatch keys with which that arrived, and its arguments. It keeps
    # none of them, since it is kept with the plan, and that as long as the operator lives.
    Strategy = Callable[[Engine, Plan, Operator, Any, Args, Kwargs], Any]


def strategy_of(plan: Plan, form: Form, identity: Identity) -> Strategy:
    """What carries out a plan at an operator that is given its arguments in a form."""
    signature = form.signature
    if plan.is_noop:
        return Plain(form).run
    if plan.pending and signature.repeatable:
        return Pending(form, identity).run
    # A module has parameters, and may so have a gradient whatever it is given.
    of_module = plan.gradient and plan.whole is not None
    if signature.writes or plan.replace or plan.pending or plan.asked or of_module:
        return General(plan, form, identity).run
    if plan.backward or plan.gradient:
        return LookingBack(plan, form, identity).run
    return Around(plan, form, identity).run


@not_a_call_site
class Plain:
    """Runs an operator that tools leave alone, but may look inside."""

    def __init__(self, form: Form) -> None:
        self._form = form

    def run(
        self, engine: Engine, plan: Plan, operator: Operator, keys: Any, args: Args, kwargs: Kwargs
    ) -> Any:
        """Carry out the plan at one execution."""
        return run_inside(plan.inside, self._form, keys, args, kwargs)


@not_a_call_site
class Around:
    """Runs routines before and after an operator that writes nowhere: the common case."""

    def __init__(self, plan: Plan, form: Form, identity: Identity) -> None:
        self._form = form
        self._identity = identity
        self._before = Routines(plan.before) if plan.before else None
        self._after = Routines(plan.after) if plan.after else None
        self._outputs_of = form.signature.outputs_of

    def run(
        self, engine: Engine, plan: Plan, operator: Operator, keys: Any, args: Args, kwargs: Kwargs
    ) -> Any:
        """Carry out the plan at one execution."""
        form, inside = self._form, plan.inside
        pick = form.pick
        inputs = form.signature.tensors(args, kwargs) if pick is None else pick(args)
        if (pick is None or count_modes() or is_jit_tracing()) and is_tracing(inputs):
            return run_inside(inside, form, keys, args, kwargs)
        given = inputs if self._before is None else self._before.run(inputs, operator)
        new_args, new_kwargs = args, kwargs
        if given is not inputs:
            new_args, new_kwargs = form.with_tensors(args, kwargs, given)
        try:
            if inside is None:
                result = form.run(*new_args, **new_kwargs)
            else:
                result = run_inside(inside, form, keys, new_args, new_kwargs)
        except OPERATOR_ERRORS as error:
            if given is not inputs:
                call = Call(engine, self._identity, operator, form, keys, args, kwargs)
                call.blame(error, plan.before)
            raise
        if self._after is None:
            return result
        outputs = self._outputs_of(result)
        finished = self._after.run(outputs, operator)
        return result if finished is outputs else form.signature.with_outputs(result, finished)


@not_a_call_site
class LookingBack:
    """Watches the gradient of an operator that writes nowhere, at executions that have one."""

    def __init__(self, plan: Plan, form: Form, identity: Identity) -> None:
        self._form = form
        self._identity = identity
        self._watched = General(plan, form, identity)
        self._unwatched = Around(plan, form, identity)

    def run(
        self, engine: Engine, plan: Plan, operator: Operator, keys: Any, args: Args, kwargs: Kwargs
    ) -> Any:
        """Carry out the plan at one execution."""
        # Where a gradient is derived from functions, what runs in them may not show that it has it.
        derived = local.thread.derived is not None
        inputs = self._form.tensors(args, kwargs)
        tracked = is_tracked(inputs)
        if derived or tracked:
            call = Call(engine, self._identity, operator, self._form, keys, args, kwargs)
            return self._watched.run_call(plan, call, inputs, tracked)
        return self._unwatched.run(engine, plan, operator, keys, args, kwargs)


@not_a_call_site
class Pending:
    """Runs an operator once more, for analyses that wait for its outputs, then as they decide."""

    def __init__(self, form: Form, identity: Identity) -> None:
        self._form = form
        self._identity = identity

    def run(
        self, engine: Engine, plan: Plan, operator: Operator, keys: Any, args: Args, kwargs: Kwargs
    ) -> Any:
        """Carry out the plan at one execution."""
        call = Call(engine, self._identity, operator, self._form, keys, args, kwargs)
        inputs = call.inputs()
        if is_tracing(inputs):
            return call.run(plan.inside)
        plan = engine.complete(plan, call.shown(inputs, call.run_to_see()))
        run = strategy_of(plan, self._form, self._identity)
        return run(engine, plan, operator, keys, args, kwargs)
