"""Routines around an operator are not differentiated, unless they ask for it."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from amanda.driving import NOTHING

from amanda_torch._internals import forward_ad, set_forward_mode, set_grad_enabled
from amanda_torch.frames import not_a_call_site
from amanda_torch.operators.higher_order import refuse_substitution
from amanda_torch.overrides import keeping_classes, overridden
from amanda_torch.tensors.straight import straight_through
from amanda_torch.tensors.substitutes import incompatible, stops_gradient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda import Operator
    from amanda.driving import Action, Forward
    from torch import Tensor

    Check = Callable[[Any, Any], str | None]
    Step = tuple[Action, Callable[..., Any]]  # and what calls its routine

_T = TypeVar("_T")
_is_grad_enabled = torch.is_grad_enabled


@not_a_call_site
class Routines:
    """This runs the routines of one plan before an operator, or after it.

    Gradients of what they return pass straight to what it replaces, but for differentiable ones.

    Args:
        actions: what they are.
        from_python: whether the operator is called by Python; see :mod:`amanda_torch.overrides`.
    """

    def __init__(self, actions: Sequence[Action], from_python: bool = False) -> None:
        self._actions = actions
        self._steps = [(a, overridden(a.call) if from_python else a.call) for a in actions]
        self._differentiable = any(action.differentiable for action in actions)

    def run(
        self, tensors: Sequence[Tensor], operator: Operator, forward: Forward = NOTHING
    ) -> Sequence[Tensor]:
        """Return ``tensors`` itself, or a list with what routines have returned in it."""
        if not self._actions:
            return tensors
        recording = _is_grad_enabled()
        if forward_ad._current_level >= 0 or (recording and self._differentiable):
            return self._run_recording(tensors, operator, forward)
        returned = tensors
        if recording:
            set_grad_enabled(False)
        try:
            for action, call in self._steps:
                result = call(returned, operator, forward)
                if result is not None:
                    check = stops_gradient if recording else incompatible
                    returned = action.substituted(result, returned, operator, check)
        finally:
            if recording:
                set_grad_enabled(True)
        if returned is tensors:
            return tensors
        refuse_substitution(self._actions, operator)
        return constant(tensors, returned) if recording else returned

    def _run_recording(
        self, tensors: Sequence[Tensor], operator: Operator, forward: Forward
    ) -> Sequence[Tensor]:
        """Run an action as autograd sees it: it records the routine, or only its results."""
        returned = tensors
        for differentiable, group in itertools.groupby(self._steps, lambda s: s[0].differentiable):
            steps = tuple(group)
            if differentiable:
                returned = _in_turn(steps, returned, operator, incompatible, forward)
                continue
            given = returned
            returned = unrecorded(_in_turn, steps, given, operator, stops_gradient, forward)
            if returned is not given:
                returned = constant(given, returned)
        if returned is not tensors:
            refuse_substitution(self._actions, operator)
        return returned


@not_a_call_site
def _in_turn(
    steps: Sequence[Step],
    tensors: Sequence[Tensor],
    operator: Operator,
    check: Check,
    forward: Forward,
) -> Sequence[Tensor]:
    for action, call in steps:
        result = call(tensors, operator, forward)
        if result is not None:
            tensors = action.substituted(result, tensors, operator, check)
    return tensors


@not_a_call_site
def recording(backward: bool, forward: bool, run: Callable[..., _T], *args: Any) -> _T:
    """Run something with its derivatives recorded, or not, in either mode.

    Args:
        backward: whether in backward mode.
        forward: whether in forward mode, where that is in use.
        run: what is run.
        *args: what it is given.
    """
    before = _is_grad_enabled()
    forward_mode = set_forward_mode(forward) if forward_ad._current_level >= 0 else None
    set_grad_enabled(backward)
    try:
        return run(*args)
    finally:
        set_grad_enabled(before)
        if forward_mode is not None:
            forward_mode.__exit__(None, None, None)


unrecorded = functools.partial(recording, False, False)
"""Run what is not differentiated, but stands for something that is."""


def constant(originals: Sequence[Tensor], substitutes: Sequence[Tensor]) -> Sequence[Tensor]:
    """Make substitutes constant, so that their gradients pass straight to the originals."""
    detached = list(substitutes)
    for i, substitute in enumerate(substitutes):
        if substitute.requires_grad and substitute is not originals[i]:
            detached[i] = keeping_classes(torch.Tensor.detach, substitute)
    return straight_through(originals, detached)
