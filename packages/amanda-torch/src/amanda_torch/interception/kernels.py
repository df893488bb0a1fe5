"""A kernel takes an execution from the dispatcher to what its plan says."""

from __future__ import annotations

from sys import _getframe as getframe
from typing import TYPE_CHECKING, Any

from amanda import AmandaError

from amanda_torch._internals import set_key_included
from amanda_torch.execution.call import Call, run_inside
from amanda_torch.execution.strategies import strategy_of
from amanda_torch.frames import not_a_call_site
from amanda_torch.overrides import with_overrides, without_overrides
from amanda_torch.thread import KEY, local
from amanda_torch.tracing import is_tracing

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda import Operator
    from amanda.driving import Engine

    from amanda_torch.operators.signature import Args, Kwargs
    from amanda_torch.operators.targets import Form, Target
    from amanda_torch.places.identity import Identity


def make_kernel(identity: Identity, type: str, resolve: Callable[[], Target]) -> Callable[..., Any]:
    """Make a kernel for the interception key.

    What it stands in front of is resolved when it first runs: most operators never do.
    """
    target: Any = None

    @not_a_call_site
    def kernel(*args: Any, **kwargs: Any) -> Any:
        nonlocal target
        thread = local.thread
        set_key_included(KEY, False)
        try:
            if target is None:
                target = resolve()
            engine = thread.engine
            if engine is None:  # a thread of autograd
                return target.form(args, kwargs).run(*args, **kwargs)
            wanted = engine.wanted
            if wanted is not None and type not in wanted:
                return run_inside(engine.inside(type), target.form(args, kwargs), args, kwargs)
            operator, form = identity.turn(target, args, kwargs, getframe(1), thread)
            ready = engine.ready.get(operator.serial)
            if ready is not None:
                for_form, carry_out = ready
                if for_form is form:
                    if carry_out is None:
                        return form.run(*args, **kwargs)
                    return carry_out(engine, operator, args, kwargs)
            return _carry_out(engine, identity, operator, form, args, kwargs)
        except AmandaError as error:
            if thread.raised is not None:
                thread.raised.append(error)
            raise
        finally:
            set_key_included(KEY, thread.engine is not None)

    return kernel


@not_a_call_site
def run_form(identity: Identity, engine: Engine, form: Form, args: Args, kwargs: Kwargs) -> Any:
    """Run an operator that the dispatcher does not know, and that the active tools want."""
    thread = local.thread
    operator = identity.operator(form, args, kwargs, getframe(1), thread)
    return run_at(identity, engine, operator, form, args, kwargs)


@not_a_call_site
def run_at(
    identity: Identity, engine: Engine, operator: Operator, form: Form, args: Args, kwargs: Kwargs
) -> Any:
    """Run such an operator, whose place is known."""
    thread = local.thread
    set_key_included(KEY, False)
    try:
        return without_overrides(_carry_out, engine, identity, operator, form, args, kwargs)
    finally:
        set_key_included(KEY, thread.engine is not None)


@not_a_call_site
def _carry_out(
    engine: Engine,
    identity: Identity,
    operator: Operator,
    form: Form,
    args: Args,
    kwargs: Kwargs,
) -> Any:
    """Carry out the plan of an operator, which is made if there is none."""
    plan = engine.plan(operator)
    if plan is None:
        call = Call(engine, identity, operator, form, args, kwargs)
        inputs = call.inputs()
        if is_tracing(inputs):
            return call.run(engine.inside(form.type))
        plan = with_overrides(engine.analyze, call.shown(inputs))
    carry_out = strategy_of(plan, form, identity)
    if engine.caching:
        engine.ready.keep(operator, (form, carry_out))
    if carry_out is None:
        return form.run(*args, **kwargs)
    return carry_out(engine, operator, args, kwargs)
