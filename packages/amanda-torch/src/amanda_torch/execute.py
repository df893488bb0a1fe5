"""Carrying out a plan at one execution of an operator."""

from __future__ import annotations

import contextlib
import functools
import itertools
from sys import _getframe as getframe
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from amanda import AmandaError, UnsupportedError
from amanda.driving import Execution
from torch import Tensor

from amanda_torch._internals import sequence_number, set_grad_enabled
from amanda_torch.backward import watch_backward
from amanda_torch.frames import skip_frames
from amanda_torch.gradient import Gradient, alias, edges
from amanda_torch.higher_order import refuse_substitution, warn_of_gradient
from amanda_torch.identity import locate
from amanda_torch.inplace import Destinations
from amanda_torch.settings import settled
from amanda_torch.signature import outputs_of, with_outputs
from amanda_torch.straight import (
    carries_gradient,
    in_graph,
    records_tangents,
    straight_through,
    without_tangents,
)
from amanda_torch.substitutes import incompatible, stops_gradient
from amanda_torch.thread import intercept, local
from amanda_torch.tracing import is_tracing
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from amanda import Operator
    from amanda.driving import Action, Engine, Plan

    from amanda_torch.signature import Args, Kwargs, Signature

_T = TypeVar("_T")
_is_grad_enabled = torch.is_grad_enabled
_nothing = contextlib.nullcontext()


class Target(NamedTuple):
    """What a kernel stands in front of.

    Attributes:
        type: the operator's type.
        signature: its signature.
        run: runs it, from the start.
        resume: runs it past our kernel, given the dispatch keys with which it arrived there, so
            that what it is made of may arrive at our kernels.
        on_numbers: the same for an execution in which numbers stand for tensors.
    """

    type: str
    signature: Signature
    run: Callable[..., Any]
    resume: Callable[..., Any]
    on_numbers: Target | None = None


def make_kernel(type: str, resolve: Callable[[], Target]) -> Callable[..., Any]:
    """A kernel for the interception key; it is given the dispatch keys first.

    What it stands in front of is resolved when it first runs: most operators never do.
    """
    resolved: Any = None
    numeric: Any = None
    arrange: Any = None
    shifting: Any = None

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal resolved, numeric, arrange, shifting
        thread = local.thread
        intercept(False)
        try:
            if resolved is None:
                resolved = resolve()
                signature = resolved.signature
                numeric, arrange = signature.numeric, signature.arrangement
                shifting = bool(signature.shifting)
            numbers = numeric(args, kwargs)
            target = resolved.on_numbers if numbers else resolved
            engine = thread.engine
            if engine is None:  # a thread of autograd
                return target.run(*args, **kwargs)
            if not engine.wants(type):
                return run_inside(engine.inside(type), target, keys, args, kwargs)
            # With other tensors among its inputs it is another operator.
            key = (type, arrange(args, numbers)) if shifting or numbers else type
            if thread.visits is None:
                given = target.signature.settings(args, kwargs, numbers)
                operator = locate(type, key, getframe(1), thread, given)
            else:
                operator = locate(type, key, getframe(1), thread)
            record = engine.records.get(operator.serial)
            plan = None if record is None else record.plan
            if plan is not None and plan.is_noop:
                if plan.inside is None:
                    return target.run(*args, **kwargs)
                return run_inside(plan.inside, target, keys, args, kwargs)
            return Call(engine, target, operator, plan, keys).execute(args, kwargs)
        finally:
            intercept(thread.engine is not None)

    return kernel


def execute(engine: Engine, target: Target, args: Args, kwargs: Kwargs) -> Any:
    """Run an operator that the dispatcher does not know, and that the tools in force want."""
    thread = local.thread
    given = target.signature.settings(args, kwargs) if thread.visits is None else None
    operator = locate(target.type, target.type, getframe(1), thread, given)
    intercept(False)
    try:
        plan = engine.plan(operator)
        return Call(engine, target, operator, plan, None).execute(args, kwargs)
    finally:
        intercept(thread.engine is not None)


def run_inside(inner: Engine | None, target: Target, keys: Any, args: Args, kwargs: Kwargs) -> Any:
    """Run an operator itself; the tools of ``inner`` see what it is made of."""
    if inner is None:
        return target.run(*args, **kwargs)
    thread = local.thread
    outer, thread.engine = thread.engine, inner
    intercept(True)
    try:
        return target.resume(keys, *args, **kwargs)
    finally:
        intercept(False)
        if thread.engine is inner:  # else a routine has left a scope, or left one open
            thread.engine = outer


class Call:
    """One execution of an operator under the tools in force."""

    __slots__ = ("engine", "keys", "operator", "plan", "target")

    def __init__(
        self, engine: Engine, target: Target, operator: Operator, plan: Plan | None, keys: Any
    ) -> None:
        self.engine = engine
        self.target = target
        self.operator = operator
        self.plan = plan
        self.keys = keys

    def execute(self, args: Args, kwargs: Kwargs) -> Any:
        """Run the operator by its plan, or by the one that is now made."""
        signature, plan = self.target.signature, self.plan
        inputs = signature.tensors(args, kwargs)
        if is_tracing(inputs):
            return self.run(args, kwargs)
        if plan is None:
            plan = self.plan = self.engine.analyze(self.shown(inputs, args, kwargs))
        if plan.pending and signature.repeatable:
            plan = self._completed(plan, inputs, args, kwargs)
        if plan.is_noop:
            return self.run(args, kwargs)
        if signature.writes or plan.replace or plan.pending or plan.backward or plan.gradient:
            return self._carry_out(plan, inputs, args, kwargs)

        # The common case, routines before and after, without what the others need.
        given = self._routines(plan.before, inputs)
        if given is inputs:
            result = self.run(args, kwargs)
        else:
            with self._blaming(plan.before, args, kwargs):
                args, kwargs = signature.with_tensors(args, kwargs, given)
                result = self.run(args, kwargs)
        if not plan.after:
            return result
        outputs = outputs_of(result)
        finished = self._routines(plan.after, outputs)
        return result if finished is outputs else with_outputs(result, finished)

    def run(self, args: Args, kwargs: Kwargs) -> Any:
        """Run the operator itself."""
        plan, target = self.plan, self.target
        inner = self.engine.inside(target.type) if plan is None else plan.inside
        return run_inside(inner, target, self.keys, args, kwargs)

    def shown(
        self,
        inputs: Sequence[Tensor],
        args: Args,
        kwargs: Kwargs,
        outputs: Sequence[Tensor] | None = None,
    ) -> Execution:
        """This execution as analysis routines see it."""
        signature = self.target.signature
        names = signature.input_names(args, kwargs)
        attrs = settled(signature.attrs(args, kwargs), self.operator)
        return Execution(self.operator, inputs, names, attrs, outputs)

    def _completed(self, plan: Plan, inputs: Sequence[Tensor], args: Args, kwargs: Kwargs) -> Plan:
        """The plan with what pending analyses decide, to whom the operator is run once more."""
        with torch.no_grad(), unshown():  # which must not count or keep this run
            outputs = outputs_of(self.target.run(*args, **kwargs))
        return self.engine.complete(plan, self.shown(inputs, args, kwargs, outputs))

    def _carry_out(self, plan: Plan, inputs: Sequence[Tensor], args: Args, kwargs: Kwargs) -> Any:
        """Carry out any plan at any operator."""
        signature, engine, operator = self.target.signature, self.engine, self.operator

        def shown(outputs: Sequence[Tensor]) -> Execution:
            return self.shown(inputs, args, kwargs, outputs)

        if plan.replace is not None:
            refuse_substitution((plan.replace,), operator)
        if plan.backward or plan.gradient:
            warn_of_gradient(operator)
        tracked = _is_tracked(inputs)
        # Where the operator writes; None for most, which write nowhere.
        destinations = None
        if signature.writes:
            redone = plan.replace is not None or any(map(_is_differentiable, plan.after))
            rewritten = bool(plan.pending) or not all(action.observes for action in plan.after)
            destinations = Destinations(
                signature, inputs, args, kwargs, tracked and redone, tracked and rewritten
            )
            if tracked and destinations.refused():
                return self.run(args, kwargs)
        given = substituted = self._routines(plan.before, inputs)
        substituting = () if given is inputs else plan.before
        if destinations is not None:
            given = destinations.give(given)
        gradient = self._gradient(plan) if tracked else None
        boundary, unbounded = None if signature.is_view or signature.reshapes else gradient, given
        if boundary is not None:
            given = boundary.enter(given)
        # Where gradients are to leave, taken now: the operator may write to its inputs.
        ahead = edges(given) if gradient is not None else []
        new_args, new_kwargs = args, kwargs
        if given is not inputs:
            new_args, new_kwargs = signature.with_tensors(args, kwargs, given)

        number = sequence_number()
        watched = _nothing if destinations is None else destinations.watched()
        with self._blaming(substituting, args, kwargs), watched:
            if plan.replace is None:
                result = self.run(new_args, new_kwargs)
                if boundary and not signature.writes and alias(outputs_of(result), given):
                    # It gave what it was given, as dropout does in evaluation.
                    boundary, given, ahead = None, unbounded, edges(unbounded)
                    result = self.run(*signature.with_tensors(args, kwargs, given))
                outputs: Sequence[Tensor] = outputs_of(result)
                if destinations is not None:
                    outputs = destinations.results(outputs, given)
            else:
                shown_inputs = given if plan.replace.differentiable else substituted
                result, outputs = self._replace(
                    plan.replace, shown_inputs, new_args, new_kwargs, destinations, tracked
                )

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
        ends = [in_graph(t).grad_fn for t in outputs] if plan.backward and tracked else []
        if boundary is not None:
            outputs = boundary.leave(ahead, given, outputs, shown)
        elif gradient is not None:
            gradient.hook(number, ahead, given, outputs, shown)
        finished = self._routines(plan.after, outputs)
        if ends:  # only now: what it takes is not to show in a tool's measurement
            watch_backward(engine, operator, returned, ends, number, shown)

        if destinations is not None:
            actions = (*plan.before, *((plan.replace,) if plan.replace else ()), *plan.after)
            bounded = outputs if boundary is not None else ()
            finished = destinations.write(
                finished, bounded, lambda reason: actions[-1].error(reason, operator)
            )
        return with_outputs(result, finished)

    def _gradient(self, plan: Plan) -> Gradient | None:
        """A watch on the gradient of this execution, if any tool may have use for it."""
        if not plan.gradient:
            return None
        known = self.engine.known_gradient_plan(self.operator)
        if known is not None and known.is_noop:
            return None
        return Gradient(self.engine, self.operator, known)

    def _routines(self, actions: Sequence[Action], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Run routines; gradients of what they return pass straight to what it replaced."""
        if not actions:
            return tensors
        returned = self._returned(actions, tensors)
        if returned is not tensors:
            refuse_substitution(actions, self.operator)
        return returned

    def _returned(self, actions: Sequence[Action], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        if not (_is_grad_enabled() or records_tangents()):
            return self.engine.run(actions, tensors, self.operator)
        run, operator = self.engine.run, self.operator
        for action in actions:
            if action.differentiable:
                break
        else:
            return self._constant(tensors, run, actions, tensors, operator, stops_gradient)
        for differentiable, group in itertools.groupby(actions, _is_differentiable):
            chosen = tuple(group)
            if differentiable:
                tensors = run(chosen, tensors, operator)
            else:
                tensors = self._constant(tensors, run, chosen, tensors, operator, stops_gradient)
        return tensors

    def _constant(
        self, tensors: Sequence[Tensor], substitute: Callable[..., Sequence[Tensor]], *args: Any
    ) -> Sequence[Tensor]:
        """What ``substitute`` gives for tensors, not differentiated: gradients pass straight."""
        returned = self._unrecorded(substitute, *args)
        if returned is tensors:
            return tensors
        constant = [
            s if s is t or not s.requires_grad else s.detach()
            for s, t in zip(returned, tensors, strict=True)
        ]
        return straight_through(tensors, constant)

    def _unrecorded(self, run: Callable[..., _T], *args: Any) -> _T:
        """Run what is not differentiated, but stands for something that is."""
        recording = _is_grad_enabled()
        set_grad_enabled(False)
        try:
            if records_tangents():
                return without_tangents(functools.partial(run, *args))
            return run(*args)
        finally:
            set_grad_enabled(recording)

    def _replace(
        self,
        action: Action,
        inputs: Sequence[Tensor],
        args: Args,
        kwargs: Kwargs,
        destinations: Destinations | None,
        tracked: bool,
    ) -> tuple[Any, Sequence[Tensor]]:
        """The result of a replacement and the tensors in it, with the gradient of the original.

        The original is run if its gradient is needed, or what it returns.

        Args:
            action: the replacement.
            inputs: what it is given.
            args: what the original is given.
            kwargs: the same.
            destinations: where the original writes.
            tracked: whether there is a gradient.
        """
        signature, operator = self.target.signature, self.operator

        def original() -> tuple[Any, Sequence[Tensor]]:
            result = self.run(args, kwargs)
            outputs = outputs_of(result)
            if destinations is None:
                return result, outputs
            return result, destinations.results(outputs, signature.tensors(args, kwargs))

        def checked(outputs: Sequence[Tensor]) -> Sequence[Tensor]:
            passing = tracked and not action.differentiable
            check = stops_gradient if passing else incompatible
            return action.substituted(returned, outputs, operator, check)

        if tracked and not action.differentiable:
            returned = self._unrecorded(action.call, inputs, operator)
            result, outputs = original()
            return result, self._constant(outputs, checked, outputs)

        returned = action.call(inputs, operator)
        values = returned if isinstance(returned, (tuple, list)) else (returned,)
        whole = signature.returns_tensors and not any(value is None for value in values)
        if signature.reshapes or not whole:
            result, outputs = original()
            return result, checked(outputs)
        count = destinations.count if destinations else signature.returns
        if count is not None:
            action.substitutes(returned, count, operator)
        for value in values:
            if not isinstance(value, Tensor):
                raise action.error(f"returned {type(value).__name__}, not a tensor", operator)
        return signature.result(values), values

    @contextlib.contextmanager
    def _blaming(self, actions: Sequence[Action], args: Args, kwargs: Kwargs) -> Iterator[None]:
        """Name the routines that substituted something when the operator cannot take it.

        It is no fault of theirs if the operator cannot take what the program gave either.
        """
        try:
            yield
        except (AmandaError, torch.OutOfMemoryError):
            raise
        except (RuntimeError, TypeError, ValueError, LookupError) as error:
            if not actions or self._refuses(args, kwargs):
                raise
            reason = f"the operator cannot take what was substituted: {error}"
            raise actions[-1].error(reason, self.operator) from error

    def _refuses(self, args: Args, kwargs: Kwargs) -> bool:
        signature = self.target.signature
        if signature.marks_dirty or signature.out_tensors(kwargs):
            return False  # it is not to be run just to see
        copies = [tensor.detach().clone() for tensor in signature.tensors(args, kwargs)]
        args, kwargs = signature.with_tensors(args, kwargs, copies)
        try:
            with torch.no_grad():
                self.target.run(*args, **kwargs)
        except (RuntimeError, TypeError, ValueError, LookupError):
            return True
        return False


def _is_differentiable(action: Action) -> bool:
    return action.differentiable


def _is_tracked(tensors: Sequence[Tensor]) -> bool:
    """Whether what is computed from tensors has a gradient, in either mode."""
    if not (_is_grad_enabled() or records_tangents()):
        return False
    return any(map(carries_gradient, tensors))


skip_frames(
    execute.__code__,
    run_inside.__code__,
    *(c for c in make_kernel.__code__.co_consts if isinstance(c, CodeType)),
    *(method.__code__ for name, method in vars(Call).items() if hasattr(method, "__code__")),
)
