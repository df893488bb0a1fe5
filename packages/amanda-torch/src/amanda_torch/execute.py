"""Carrying out a plan at one execution of an operator."""

from __future__ import annotations

import contextlib
import itertools
from sys import _getframe as getframe
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from amanda import AmandaError, UnsupportedError
from amanda.analysis import Execution
from torch import Tensor

from amanda_torch.backward import sequence_number, watch_backward
from amanda_torch.gradient import Gradient, alias
from amanda_torch.identity import locate, skip_frames
from amanda_torch.opaque import opaque
from amanda_torch.signature import outputs_of, with_outputs
from amanda_torch.straight import overwrite, straight_through
from amanda_torch.thread import intercept, local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from amanda import Operator
    from amanda.action import Action
    from amanda.engine import Engine
    from amanda.plan import Plan

    from amanda_torch.signature import Args, Kwargs, Signature

_set_grad_enabled = torch._C._set_grad_enabled
_is_grad_enabled = torch.is_grad_enabled


class Target(NamedTuple):
    """What a kernel stands in front of.

    Attributes:
        type: the operator's type.
        signature: its signature.
        run: runs it, from the start.
        resume: runs it past our kernel, given the dispatch keys with which it arrived there, so
            that what it is made of may arrive at our kernels. None if it is not made of others.
    """

    type: str
    signature: Signature
    run: Callable[..., Any]
    resume: Callable[..., Any] | None = None


def make_kernel(target: Target) -> Callable[..., Any]:
    """A kernel for the interception key; it is given the dispatch keys first."""
    type, _, run, resume = target

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        thread = local.thread
        intercept(False)
        try:
            engine = thread.engine
            if engine is None:  # a thread of autograd
                return run(*args, **kwargs)
            if not engine.wants(type):
                return run_inside(engine, target, keys, args, kwargs)
            operator = locate(type, getframe(1), thread)
            plan = engine.plans.get(operator.serial)
            if plan is not None and plan.idle and (resume is None or engine.inside(type) is None):
                return run(*args, **kwargs)
            return Call(engine, target, operator, keys).execute(plan, args, kwargs)
        finally:
            intercept(thread.engine is not None)

    return kernel


def execute(target: Target, args: Args, kwargs: Kwargs) -> Any:
    """Run an operator that the dispatcher does not know, under the tools in force."""
    thread = local.thread
    engine = thread.engine
    assert engine is not None
    if not engine.wants(target.type):
        return target.run(*args, **kwargs)
    operator = locate(target.type, getframe(1), thread)
    intercept(False)
    try:
        plan = engine.plans.get(operator.serial)
        return Call(engine, target, operator, None).execute(plan, args, kwargs)
    finally:
        intercept(thread.engine is not None)


def run_inside(engine: Engine, target: Target, keys: Any, args: Args, kwargs: Kwargs) -> Any:
    """Run an operator itself; only tools that do not want it see what it is made of."""
    inner = None if target.resume is None else engine.inside(target.type)
    if inner is None:
        return target.run(*args, **kwargs)
    assert target.resume is not None
    thread = local.thread
    thread.engine = inner
    intercept(True)
    try:
        return target.resume(keys, *args, **kwargs)
    finally:
        intercept(False)
        thread.engine = engine


class Call:
    """One execution of an operator under the tools in force."""

    __slots__ = ("engine", "keys", "operator", "target")

    def __init__(self, engine: Engine, target: Target, operator: Operator, keys: Any) -> None:
        self.engine = engine
        self.target = target
        self.operator = operator
        self.keys = keys

    def execute(self, plan: Plan | None, args: Args, kwargs: Kwargs) -> Any:
        """Run the operator by its plan, or by the one that is now made."""
        signature = self.target.signature
        if plan is not None and plan.idle:
            return self.run(args, kwargs)
        inputs = signature.tensors(args, kwargs)
        if opaque(inputs):
            return self.run(args, kwargs)
        if plan is None:
            plan = self.engine.analyze(self.shown(inputs, args, kwargs))
        if plan.pending and signature.repeatable:
            plan = self._completed(plan, inputs, args, kwargs)
        if plan.idle:
            return self.run(args, kwargs)
        if signature.writes or plan.replace or plan.pending or plan.backward or plan.gradient:
            return self._carry_out(plan, inputs, args, kwargs)

        # The common case, routines before and after, without what the others need.
        given = self._routines(plan.before, inputs)
        if given is inputs:
            result = self.run(args, kwargs)
        else:
            args, kwargs = signature.with_tensors(args, kwargs, given)
            with self._blaming(plan.before):
                result = self.run(args, kwargs)
        if not plan.after:
            return result
        outputs = outputs_of(result)
        finished = self._routines(plan.after, outputs)
        return result if finished is outputs else with_outputs(result, finished)

    def run(self, args: Args, kwargs: Kwargs) -> Any:
        """Run the operator itself."""
        return run_inside(self.engine, self.target, self.keys, args, kwargs)

    def shown(
        self,
        inputs: Sequence[Tensor],
        args: Args,
        kwargs: Kwargs,
        outputs: Sequence[Tensor] | None = None,
    ) -> Execution:
        """This execution as analysis routines see it."""
        signature = self.target.signature
        names, attrs = signature.input_names(args, kwargs), signature.attrs(args, kwargs)
        return Execution(self.operator, inputs, names, attrs, outputs)

    def _completed(self, plan: Plan, inputs: Sequence[Tensor], args: Args, kwargs: Kwargs) -> Plan:
        """The plan with what pending analyses decide, to whom the operator is run once more."""
        with torch.no_grad():
            outputs = outputs_of(self.target.run(*args, **kwargs))
        return self.engine.complete(plan, self.shown(inputs, args, kwargs, outputs))

    def _carry_out(self, plan: Plan, inputs: Sequence[Tensor], args: Args, kwargs: Kwargs) -> Any:
        """Carry out any plan at any operator."""
        signature, engine, operator = self.target.signature, self.engine, self.operator

        def shown(outputs: Sequence[Tensor]) -> Execution:
            return self.shown(inputs, args, kwargs, outputs)

        tracked = _is_grad_enabled() and any(t.requires_grad for t in inputs)
        given = self._routines(plan.before, inputs)
        substituting = () if given is inputs else plan.before
        gradient = self._gradient(plan) if tracked else None
        boundary, unbounded = None if signature.is_view else gradient, given
        if boundary is not None:
            given = boundary.enter(given)
        new_args, new_kwargs = args, kwargs
        if given is not inputs:
            new_args, new_kwargs = signature.with_tensors(args, kwargs, given)

        # An in-place operator that is interfered with runs on a copy, which is written back in
        # the end: what its backward needs stays, and gradients and substitutes go where they
        # should.
        destinations = signature.destinations(args, kwargs)
        if signature.written:
            written = signature.destinations(new_args, new_kwargs)
            moved = any(a is not b for a, b in zip(written, destinations, strict=True))
            substituted = plan.replace or not all(action.observes for action in plan.after)
            touched = tracked and (substituted or gradient is not None)
            if moved or touched:
                new_args = signature.with_copies(new_args)

        number = sequence_number()
        with self._blaming(substituting):
            if plan.replace is None:
                result = self.run(new_args, new_kwargs)
                if boundary and not signature.writes and alias(outputs_of(result), given):
                    # It gave what it was given, as dropout does in evaluation.
                    boundary, given = None, unbounded
                    result = self.run(*signature.with_tensors(args, kwargs, given))
            else:
                result = self._replace(plan.replace, new_args, new_kwargs, tracked)
        outputs: Sequence[Tensor] = outputs_of(result)
        if destinations and not outputs:
            outputs = signature.destinations(new_args, new_kwargs)

        if plan.pending:
            completed = engine.complete(plan, shown([t.detach() for t in outputs]))
            if completed.before != plan.before or completed.replace is not plan.replace:
                raise UnsupportedError(
                    f"{operator.id}: an analysis with require_outputs=True inserted before or "
                    "instead of an operator that cannot be run a second time; insert after it, or "
                    "analyze without outputs"
                )
            plan = completed

        returned = outputs
        ends = [t.grad_fn for t in outputs] if plan.backward and tracked else []
        if boundary is not None:
            outputs = boundary.leave(given, outputs, shown)
        elif gradient is not None:
            gradient.hook(number, given, outputs, shown)
        finished = self._routines(plan.after, outputs)
        if ends:  # only now: what it takes is not to show in a tool's measurement
            watch_backward(engine, operator, returned, ends, number, shown)

        if destinations:
            finished = [
                d if v is d else overwrite(d, v)
                for d, v in zip(destinations, finished, strict=True)
            ]
        return with_outputs(result, finished)

    def _gradient(self, plan: Plan) -> Gradient | None:
        """A watch on the gradient of this execution, if any tool may have use for it."""
        if not plan.gradient:
            return None
        known = self.engine.known_gradient_plan(self.operator)
        if known is not None and known.idle:
            return None
        return Gradient(self.engine, self.operator, known)

    def _routines(self, actions: Sequence[Action], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Run routines; gradients of what they return pass straight to what it replaced."""
        if not actions:
            return tensors
        if not _is_grad_enabled():
            return self.engine.run(actions, tensors, self.operator)
        if not any(map(_is_differentiable, actions)):
            return self._constant(actions, tensors)
        for differentiable, group in itertools.groupby(actions, _is_differentiable):
            if differentiable:
                tensors = self.engine.run(tuple(group), tensors, self.operator)
            else:
                tensors = self._constant(tuple(group), tensors)
        return tensors

    def _constant(self, actions: Sequence[Action], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Run routines that are not differentiated, while gradients are recorded."""
        thread = local.thread
        thread.tracking = True
        _set_grad_enabled(False)
        try:
            returned = self.engine.run(actions, tensors, self.operator)
        finally:
            _set_grad_enabled(True)
            thread.tracking = False
        if returned is tensors:
            return tensors
        constant = [
            s if s is t or not s.requires_grad else s.detach()
            for s, t in zip(returned, tensors, strict=True)
        ]
        return straight_through(tensors, constant)

    def _replace(self, action: Action, args: Args, kwargs: Kwargs, tracked: bool) -> Any:
        """What a replacement returns, with the gradient of the original unless differentiable."""
        operator, signature = self.operator, self.target.signature
        inputs = signature.tensors(args, kwargs)
        if action.differentiable or not tracked:
            return _as_returned(signature, action, operator, action.call(inputs, operator))
        _set_grad_enabled(False)
        try:
            values = action.call(inputs, operator)
        finally:
            _set_grad_enabled(True)
        result = self.run(args, kwargs)
        originals = outputs_of(result)
        values = action.substitutes(values, len(originals), operator)
        for original, value in zip(originals, values, strict=True):
            reason = self.engine.driver.refusal(original, value)
            if reason is None and original.shape != value.shape:
                reason = (
                    f"returned shape {tuple(value.shape)} for {tuple(original.shape)}, which "
                    "cannot have the original's gradient; insert it with differentiable=True"
                )
            if reason is not None:
                raise action.error(reason, operator)
        return with_outputs(result, straight_through(originals, [v.detach() for v in values]))

    @contextlib.contextmanager
    def _blaming(self, actions: Sequence[Action]) -> Iterator[None]:
        """Name the routines that substituted something when the operator cannot take it."""
        try:
            yield
        except AmandaError:
            raise
        except (RuntimeError, TypeError, ValueError, LookupError) as error:
            if not actions:
                raise
            reason = f"the operator cannot take what was substituted: {error}"
            raise actions[-1].error(reason, self.operator) from error


def _is_differentiable(action: Action) -> bool:
    return action.differentiable


def _as_returned(signature: Signature, action: Action, operator: Operator, values: Any) -> Any:
    """The result of a replacement in the form in which the operator returns its own."""
    if signature.returns is None:
        return values
    values = action.substitutes(values, signature.returns, operator)
    for value in values:
        if not isinstance(value, Tensor):
            raise action.error(f"returned {type(value).__name__}, not a tensor", operator)
    return values[0] if signature.returns == 1 else tuple(values)


skip_frames(
    execute.__code__,
    run_inside.__code__,
    make_kernel(Target("", None, None)).__code__,  # type: ignore[arg-type]
    *(method.__code__ for name, method in vars(Call).items() if hasattr(method, "__code__")),
)
