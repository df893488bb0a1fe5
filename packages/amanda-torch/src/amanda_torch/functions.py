"""Calls of custom autograd Functions, which are no operators for the dispatcher.

Up to PyTorch 2.14 ``Function.apply`` is Python code that ends in a method of a base class, or,
under the transforms of ``torch.func``, in a function; both can be exchanged. From 2.15 on it is
C++, which a program that took hold of ``MyFunction.apply`` long ago calls directly. What that looks
up at each call can be exchanged: whether the class has a ``setup_context``, then what binds its
arguments, then, if transforms are in use, what it returns the result of. So for a call that is
to be seen it finds a ``setup_context``, and transforms in use from there until it asks us.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import TYPE_CHECKING, Any

import torch

from amanda_torch._internals import (
    APPLY_IN_PYTHON,
    FunctionBase,
    FunctionMeta,
    SingleLevelFunction,
    bind_default_args,
    custom_function_call,
    enter_transform,
    leave_transform,
    transforms_active,
)
from amanda_torch.frames import skip_frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda_torch.signature import Args, Kwargs

    Run = Callable[..., Any]
    Patch = tuple[Any, str, Any]

_apply = vars(FunctionBase)["apply"]
_NAME = "setup_context"


def patches_of_functions(
    concerns: Callable[[Any], bool], run: Callable[[Any, Run, Args, Kwargs], Any]
) -> list[Patch]:
    """What to exchange so that calls of Functions are seen.

    Args:
        concerns: whether a call of this class is to be seen, here and now.
        run: called instead, with the class, what the call would do, and its arguments.
    """

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return run(cls, functools.partial(_applied, cls), args, kwargs)

    def apply_transformed(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return run(cls, functools.partial(custom_function_call, cls), args, kwargs)

    skip_frames(apply.__code__, apply_transformed.__code__)
    if APPLY_IN_PYTHON:
        return [
            (SingleLevelFunction, "apply", classmethod(apply)),
            (torch.autograd.function, "custom_function_call", apply_transformed),
        ]

    entering = _Entering()

    def bind(forward: Any, args: Args, kwargs: Kwargs | None) -> tuple[Args, Kwargs]:
        cls, entering.cls = entering.cls, None
        if cls is None or _setup_context(cls) is not _NONE:
            args, kwargs = bind_default_args(forward, args, kwargs)
        if cls is not None:
            enter_transform()  # what runs next is `call`
            entering.entered = True
        return args, kwargs or {}

    def call(cls: Any, args: Args, kwargs: Kwargs | None) -> Any:
        if entering.entered:
            entering.entered = False
            leave_transform()
        seen = apply_transformed if transforms_active() else apply
        return seen(cls, *args, **(kwargs or {}))

    skip_frames(call.__code__)
    return [
        (FunctionMeta, _NAME, _SetupContext(concerns, entering)),
        (torch.autograd.function, "_bind_default_args", bind),
        (torch.autograd.function, "_call_custom_function_call", call),
    ]


class _Entering(threading.local):
    """The Function that a call in this thread is of, until its arguments are bound, and whether
    a transform was entered then."""

    cls: Any = None
    entered = False


class _SetupContext:
    """What a Function's ``setup_context`` is found by, before that of the class."""

    def __init__(self, concerns: Callable[[Any], bool], entering: _Entering) -> None:
        self._concerns = concerns
        self._entering = entering

    def __get__(self, cls: Any, _: type) -> Any:
        found = _setup_context(cls)
        if cls is SingleLevelFunction or transforms_active() or not self._concerns(cls):
            return found
        code = sys._getframe(1).f_code
        if code is _applied.__code__ or _NAME in code.co_names:  # ours, or asked for in Python
            return found
        self._entering.cls = cls
        return functools.partial(found)  # which is not the one that stands for none

    def __set__(self, cls: Any, value: Any) -> None:
        delattr(FunctionMeta, _NAME)
        try:
            setattr(cls, _NAME, value)
        finally:
            setattr(FunctionMeta, _NAME, self)


def _setup_context(cls: Any) -> Any:
    return next(vars(c)[_NAME] for c in cls.__mro__ if _NAME in vars(c)).__get__(None, cls)


def _applied(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """What ``Function.apply`` ends in, and from 2.15 on, all that it does."""
    return _apply.__get__(None, cls)(*args, **kwargs)


_NONE = _setup_context(SingleLevelFunction)
skip_frames(_applied.__code__)
if APPLY_IN_PYTHON:
    skip_frames(torch.autograd.Function.apply.__code__)
