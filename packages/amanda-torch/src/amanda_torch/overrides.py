"""What the driver looks up of tensors is shown to no ``__torch_function__`` of the program.

An operator arrives from the dispatcher once the modes and the classes of tensors that override
functions were asked. The call of a module or of a custom Function comes from Python: there, all
that the driver does would be shown to them, but for what is the program's or a tool's own.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from amanda_torch._internals import NO_OVERRIDES, overrides, set_overrides
from amanda_torch.frames import not_a_call_site
from amanda_torch.thread import local

if TYPE_CHECKING:
    from collections.abc import Callable

# Classes of tensors that override nothing.
_WITHOUT = (Tensor, torch.nn.Parameter)

_T = TypeVar("_T")


@not_a_call_site
def without_overrides(function: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
    """Run what the driver does."""
    thread = local.thread
    outer, thread.overrides = thread.overrides, overrides()
    set_overrides(NO_OVERRIDES)
    try:
        return function(*args, **kwargs)
    finally:
        set_overrides(thread.overrides)
        thread.overrides = outer


@not_a_call_site
def with_overrides(function: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
    """Run what is the program's or a tool's, within :func:`without_overrides`."""
    thread = local.thread
    before = thread.overrides
    if before is None:
        return function(*args, **kwargs)
    set_overrides(before)
    thread.overrides = None
    try:
        return function(*args, **kwargs)
    finally:
        thread.overrides = before
        set_overrides(NO_OVERRIDES)


@not_a_call_site
def keeping_classes(function: Callable[..., _T], *args: Any) -> _T:
    """Run what makes a tensor for the program out of one of its own, which keeps its class."""
    if local.thread.overrides is None or all(type(t) in _WITHOUT for t in args if _is_tensor(t)):
        return function(*args)
    return with_overrides(function, *args)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def overridden(function: Callable[..., _T]) -> Callable[..., _T]:
    """Return a function of the program that runs as :func:`with_overrides` runs it."""
    return functools.partial(with_overrides, function)
