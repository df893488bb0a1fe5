"""Operators that an activation checkpoint recomputes are those that ran in the forward pass."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch.utils.checkpoint as checkpointing
from amanda import RoutineError

from amanda_torch._internals import CheckpointFrame, StopRecomputation
from amanda_torch.backward.nodes import reaches
from amanda_torch.frames import not_a_call_site, resumes_an_address
from amanda_torch.interception.script import run_as_written
from amanda_torch.thread import ThreadState, intercept, intercepting, local

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from amanda_torch.places.identity import Identity

    Patch = tuple[Any, str, Any]

_new_frame = CheckpointFrame.__init__
_forward = checkpointing.CheckpointFunction.__dict__["forward"]


def patches_of_checkpoints(identity: Identity) -> list[Patch]:
    """List the patches by which what a checkpoint recomputes is seen as it was first."""

    @not_a_call_site
    def checkpoint_frame(self: Any, recompute: Callable[..., Any], *args: Any) -> None:
        _new_frame(self, _resumed(recompute, sys._getframe(1), identity), *args)

    @not_a_call_site
    def checkpoint_forward(ctx: Any, run: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        resumed = _resumed(run, sys._getframe(1), identity)
        outputs = _forward.__func__(ctx, run, preserve, *args)
        ctx.run_function = resumed
        return outputs

    return [
        (CheckpointFrame, "__init__", checkpoint_frame),
        (checkpointing.CheckpointFunction, "forward", staticmethod(checkpoint_forward)),
    ]


def _resumed(
    function: Callable[..., Any], frame: FrameType, identity: Identity
) -> Callable[..., Any]:
    """Make a function that is recomputed where in the model, and under which tools, it runs now."""
    thread = local.thread
    engine = thread.engine
    if engine is None:
        return function
    session, outside, floor = thread.session, thread.outside, thread.floor
    visits = None if thread.visits is None else dict(thread.visits)
    place, origin = identity.whereabouts(frame, thread)
    context = None if thread.entered is None else identity.context(thread.entered, thread)

    @resumes_an_address
    def resumed(*args: Any, **kwargs: Any) -> Any:
        if not reaches(engine):
            return function(*args, **kwargs)
        before, on = local.thread, intercepting()
        thread = local.thread = ThreadState(before.around)  # also in a thread of autograd
        thread.engine, thread.active, thread.session = engine, before.active, session
        thread.known = True
        thread.entered = None if context is None else [None, None, None, context]
        thread.outside, thread.floor = outside, floor
        thread.resumed, thread.origin = place, origin
        thread.visits = None if visits is None else dict(visits)
        run_as_written(thread, True)
        intercept(True)
        try:
            return function(*args, **kwargs)
        except RoutineError as error:
            stop = error.__cause__  # a checkpoint has what it needs, amid a routine
            if isinstance(stop, StopRecomputation):
                raise stop from None
            raise
        finally:
            run_as_written(thread, False)
            local.thread = before
            intercept(on)

    return resumed
