"""Carrying out a plan at one execution of an operator."""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from amanda import AmandaError, UnsupportedError
from amanda.context import Execution
from torch import Tensor

from amanda_torch.backward import watch_backward
from amanda_torch.gradient import Gradient
from amanda_torch.identity import locate, skip_frames
from amanda_torch.opaque import opaque
from amanda_torch.signature import outputs_of, with_outputs
from amanda_torch.straight import overwrite, straight_through
from amanda_torch.thread import intercept, thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda import Operator
    from amanda.action import Action
    from amanda.engine import Engine, Plan

    from amanda_torch.signature import Args, Kwargs, Signature

_set_grad_enabled = torch._C._set_grad_enabled
_is_grad_enabled = torch.is_grad_enabled


class Target(NamedTuple):
    """What a kernel stands in front of: an operator's type, its signature and itself."""

    type: str
    signature: Signature
    run: Callable[..., Any]


def make_kernel(type: str, signature: Signature, run: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel for the interception key."""
    target = Target(type, signature, run)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        engine = thread.engine
        intercept(False)
        try:
            if engine is None:
                return run(*args, **kwargs)
            operator = locate(type, sys._getframe(1))
            plan = engine.plans.get(operator.serial)
            if plan is not None and plan.idle:
                return _run(engine, target, args, kwargs)
            return _execute(engine, target, operator, plan, args, kwargs)
        finally:
            intercept(thread.engine is not None)

    return kernel


def execute(target: Target, args: Args, kwargs: Kwargs) -> Any:
    """Run an operator that the dispatcher does not know, under the tools in force."""
    engine = thread.engine
    assert engine is not None
    if not engine.wants(target.type):
        return target.run(*args, **kwargs)
    operator = locate(target.type, sys._getframe(1))
    intercept(False)
    try:
        return _execute(engine, target, operator, engine.plans.get(operator.serial), args, kwargs)
    finally:
        intercept(thread.engine is not None)


def _run(engine: Engine, target: Target, args: Args, kwargs: Kwargs) -> Any:
    """Run the operator itself; only tools that do not want it see what is inside."""
    inner = engine.inside(target.type)
    if inner is None:
        return target.run(*args, **kwargs)
    thread.engine = inner
    intercept(True)
    try:
        return target.run(*args, **kwargs)
    finally:
        intercept(False)
        thread.engine = engine


def _execute(
    engine: Engine,
    target: Target,
    operator: Operator,
    plan: Plan | None,
    args: Args,
    kwargs: Kwargs,
) -> Any:
    signature = target.signature
    inputs: Sequence[Tensor] = signature.tensors(args, kwargs)
    if opaque(inputs):
        return _run(engine, target, args, kwargs)

    def shown(outputs: Sequence[Tensor] | None = None) -> Execution:
        return Execution(
            operator,
            inputs,
            signature.input_names(args, kwargs),
            signature.attrs(args, kwargs),
            outputs,
        )

    if plan is None:
        plan = engine.analyze(shown())
        if plan.idle:
            return _run(engine, target, args, kwargs)

    tracked = _is_grad_enabled() and any(t.requires_grad for t in inputs)
    given = _routines(engine, plan.before, inputs, operator)

    gradient = None
    if plan.gradient and tracked:
        gradient_plan = engine.known_gradient_plan(operator)
        if gradient_plan is None or not gradient_plan.idle:
            gradient = Gradient(engine, operator, gradient_plan)
            if not signature.is_view:
                given = gradient.enter(given)

    # An in-place operator that is interfered with runs on a copy, which is written back in the
    # end: what its backward needs stays, and gradients and substitutes go where they should.
    destinations = signature.destinations(args, kwargs)
    new_args, new_kwargs = args, kwargs
    if given is not inputs:
        new_args, new_kwargs = signature.with_tensors(args, kwargs, given)
    if signature.written:
        touched = plan.after or plan.replace or gradient is not None
        writes_to = signature.destinations(new_args, new_kwargs)
        moved = any(a is not b for a, b in zip(writes_to, destinations, strict=True))
        if moved or (tracked and touched):
            new_args = tuple(
                _copies(a) if i in signature.written else a for i, a in enumerate(new_args)
            )

    before_nodes = [t.grad_fn for t in given] if plan.backward and tracked else None
    replaced = plan.replace
    try:
        if replaced is None:
            result = _run(engine, target, new_args, new_kwargs)
        else:
            result = _replace(engine, target, operator, replaced, new_args, new_kwargs, tracked)
    except AmandaError:
        raise
    except Exception as error:
        if given is inputs or replaced is not None or not plan.before:
            raise
        reason = f"the operator cannot take what was substituted: {error}"
        raise plan.before[-1].error(reason, operator) from error

    outputs: Sequence[Tensor] = outputs_of(result)
    if destinations and not outputs:
        outputs = signature.destinations(new_args, new_kwargs)

    if plan.pending:
        completed = engine.complete(plan, shown([t.detach() for t in outputs]))
        if completed.before != plan.before or completed.replace is not plan.replace:
            if not signature.repeatable:
                raise UnsupportedError(
                    f"{operator.id}: an analysis with require_outputs=True inserted before or "
                    "instead of an operator that cannot be run a second time; insert after it, "
                    "or analyze without outputs"
                )
            return _execute(engine, target, operator, completed, args, kwargs)
        plan = completed

    if before_nodes is not None:
        watch_backward(engine, operator, outputs, before_nodes, shown)
    if gradient is not None and signature.is_view:
        gradient.hook(given, outputs, shown, lambda tensors: _rerun(target, args, kwargs, tensors))
    elif gradient is not None:
        outputs = gradient.leave(given, outputs, shown)
    finished = _routines(engine, plan.after, outputs, operator)

    if destinations:
        finished = [
            d if v is d else overwrite(d, v) for d, v in zip(destinations, finished, strict=True)
        ]
        return with_outputs(result, finished)
    return result if finished is outputs and gradient is None else with_outputs(result, finished)


def _routines(
    engine: Engine, actions: Sequence[Action], tensors: Sequence[Tensor], operator: Operator
) -> Sequence[Tensor]:
    """Run routines; gradients of what they return pass straight to what it replaced."""
    if not actions:
        return tensors
    if not _is_grad_enabled():
        return engine.run(actions, tensors, operator)
    for differentiable, group in itertools.groupby(actions, _is_differentiable):
        if differentiable:
            tensors = engine.run(tuple(group), tensors, operator)
            continue
        thread.tracking = True
        _set_grad_enabled(False)
        try:
            returned = engine.run(tuple(group), tensors, operator)
        finally:
            _set_grad_enabled(True)
            thread.tracking = False
        if returned is not tensors:
            constant = [
                s if s is t or not s.requires_grad else s.detach()
                for s, t in zip(returned, tensors, strict=True)
            ]
            tensors = straight_through(tensors, constant)
    return tensors


def _is_differentiable(action: Action) -> bool:
    return action.differentiable


def _replace(
    engine: Engine,
    target: Target,
    operator: Operator,
    action: Action,
    args: Args,
    kwargs: Kwargs,
    tracked: bool,
) -> Any:
    """What a replacement returns, with the gradient of the original unless differentiable."""
    inputs = target.signature.tensors(args, kwargs)
    if action.differentiable or not tracked:
        values = action.call(inputs, operator)
        return _as_returned(target.signature, action, operator, values)
    _set_grad_enabled(False)
    try:
        values = action.call(inputs, operator)
    finally:
        _set_grad_enabled(True)
    result = _run(engine, target, args, kwargs)
    originals = outputs_of(result)
    values = action.substitutes(values, len(originals), operator)
    for original, value in zip(originals, values, strict=True):
        reason = engine.driver.refusal(original, value)
        if reason is None and original.shape != value.shape:
            reason = (
                f"returned shape {tuple(value.shape)} for {tuple(original.shape)}, which cannot "
                "have the original's gradient; insert it with differentiable=True"
            )
        if reason is not None:
            raise action.error(reason, operator)
    substitutes = straight_through(originals, [value.detach() for value in values])
    return with_outputs(result, substitutes)


def _as_returned(signature: Signature, action: Action, operator: Operator, values: Any) -> Any:
    """The result of a replacement in the form in which the operator returns its own."""
    if signature.returns is None:
        return values
    values = action.substitutes(values, signature.returns, operator)
    for value in values:
        if not isinstance(value, Tensor):
            raise action.error(f"returned {type(value).__name__}, not a tensor", operator)
    return values[0] if signature.returns == 1 else tuple(values)


def _rerun(target: Target, args: Args, kwargs: Kwargs, tensors: Sequence[Tensor]) -> Any:
    args, kwargs = target.signature.with_tensors(args, kwargs, tensors)
    return target.run(*args, **kwargs)


def _copies(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    return [tensor.clone() for tensor in value]


skip_frames(
    execute.__code__,
    _execute.__code__,
    _run.__code__,
    _replace.__code__,
    make_kernel("", None, None).__code__,  # type: ignore[arg-type]
)
