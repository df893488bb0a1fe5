"""Numbers may stand for tensors: ``x > 0`` is computed as ``gt(x, 0)`` on two tensors.

PyTorch marks the tensor that it makes of a number as a wrapped number, since that promotes types as
a number does. A Python kernel is given the number itself, and most operators do not take it back.
So it is wrapped again before they run, and so is a number among their results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from amanda_torch._internals import (
    DisableTorchFunction,
    DispatchKey,
    DispatchKeySet,
    ForceDispatchKeys,
    InferenceMode,
    has_storage,
    is_profiled,
    multiply,
    record_functions,
    set_grad_enabled,
)

if TYPE_CHECKING:
    from torch import Tensor

NUMBERS = frozenset((bool, int, float, complex, torch.SymBool, torch.SymInt, torch.SymFloat))
"""Types of what a Python kernel may be given in place of a tensor."""

# The dispatch keys that a thread includes, and those it excludes, where no mode is active.
_INCLUDED = DispatchKeySet(DispatchKey.BackendSelect) | DispatchKeySet(DispatchKey.ADInplaceOrView)
_EXCLUDED = DispatchKeySet(DispatchKey.Undefined)
with InferenceMode(False), ForceDispatchKeys(_INCLUDED, _EXCLUDED):
    _one = torch.ones((), requires_grad=True)


def outside_of_transforms() -> Any:
    """Open a block in which no transform of ``torch.func`` and no mode wraps what is computed."""
    return ForceDispatchKeys(_INCLUDED, _EXCLUDED)


def wrapped(number: Any) -> Tensor:
    """Return a number as the tensor that PyTorch makes of it.

    Python has no function for this, but an operator that takes a number for a tensor keeps what it
    has made of it for its gradient. Neither modes nor hooks nor profilers of the program see it.
    """
    recording, profiled = torch.is_grad_enabled(), is_profiled()
    with (
        InferenceMode(False),
        ForceDispatchKeys(_INCLUDED, _EXCLUDED),
        DisableTorchFunction(),
    ):
        set_grad_enabled(True)
        if profiled:
            record_functions(False)
        try:
            node: Any = multiply(_one, number).grad_fn
            tensor: Tensor = node._saved_other
        finally:
            if profiled:
                record_functions(True)
            set_grad_enabled(recording)
    return tensor


def wrapped_in(value: Any) -> Any:
    """Return a value, or a list, with its numbers wrapped."""
    if type(value) in NUMBERS:
        return wrapped(value)
    if type(value) in (list, tuple):
        return type(value)(wrapped_in(element) for element in value)
    return value


class NumberWithoutValue:
    """This is an attribute that PyTorch hands to Python in place of a wrapped number.

    A number that lies nowhere in memory would be an error there: the tangent of a number, a zero
    that is not stored, in what a derivative computes. It is handed over as the tensor that it is.
    """

    def __get__(self, tensor: Tensor | None, owner: type) -> Tensor | None:
        if tensor is None:  # who goes through the attributes of the class finds nothing to call
            return None
        if has_storage(tensor):
            raise AttributeError("_wrapped_number")
        return tensor
