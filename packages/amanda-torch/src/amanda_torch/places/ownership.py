"""An operator belongs to the program, to an optimizer, or to torch's own internals."""

from __future__ import annotations

import functools
import inspect
import sys
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from amanda_torch.frames import ENDS, ROLES, SKIPPED, argument, first_argument

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

# Where torch runs operators for purposes of its own; tools see them when they ask for their type.
_INTERNAL_NAMESPACES = (
    "torch._dynamo.utils.",
    "torch._tensor_str.",
    "torch.amp.",
    "torch.distributed.",
    "torch.jit.",
    "torch.nn.parallel.",
    "torch.optim.",
    "torch.testing.",
    "torch.utils.data.",
)
# What stands in front of operators in Python, for torch as for programs.
_FRONTS = frozenset(("torch._tensor", "torch.functional", "torch.nn.functional"))
# Packages whose frames lie between an optimizer and what it calls, whoever that belongs to.
_BETWEEN = frozenset(("torch", "amanda", "amanda_torch", *sys.stdlib_module_names))

# How often a function is unwrapped in search of its code: a chain of wrappers may be a circle.
_WRAPPED_AT_MOST = 16


def optimizer(frame: FrameType | None) -> str | None:
    """Return the class of the optimizer whose ``step`` runs an operator called from a frame.

    Where any frame in between is neither torch's nor the optimizer's, the operator is the
    program's: a closure that the optimizer calls, a hook, a wrapper around either.
    """
    passed: list[FrameType] = []
    while frame is not None and ROLES.get(id(frame.f_code)) is not ENDS:
        if frame.f_code.co_name in ("step", "zero_grad"):
            candidate = first_argument(frame)
            if isinstance(candidate, torch.optim.Optimizer):
                return None if _leaves(candidate, frame, passed) else type(candidate).__name__
        passed.append(frame)
        frame = frame.f_back
    return None


def _leaves(optimizer: torch.optim.Optimizer, step: FrameType, passed: list[FrameType]) -> bool:
    """Tell whether any of the frames that were called from a step is the program's."""
    packages = {_package(cls.__module__) for cls in type(optimizer).__mro__} - _BETWEEN
    given = set(_given(step)) if packages else set()
    for frame, caller in zip(passed, [*passed, step][1:], strict=True):
        package = _package(_module(frame))
        if package in _BETWEEN:
            continue
        if package not in packages or frame.f_code in given:
            return True
        if None in given and not _is_own(frame, caller, optimizer):
            return True
    return False


def _is_own(frame: FrameType, caller: FrameType, optimizer: torch.optim.Optimizer) -> bool:
    """Tell whether a function from an optimizer's file is called by name, or on the optimizer.

    A closure that shows no code, as a function written in C, may be any other of that file.
    """
    code, calling = frame.f_code, caller.f_code
    by_name = code.co_name in calling.co_names or code in calling.co_consts
    return by_name or first_argument(frame) is optimizer


def _given(step: FrameType) -> Iterator[CodeType | None]:
    """List the code of each function that a step is given; None for one that shows none."""
    code = step.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)  # *args, **kwargs
    for name in code.co_varnames[1:count]:
        value = argument(step, name)
        if isinstance(value, dict):
            value = tuple(value.values())
        for item in value if type(value) is tuple else (value,):
            if callable(item) and not isinstance(item, torch.Tensor):
                yield from _codes(item)


def _codes(function: Any) -> Iterator[CodeType | None]:
    """List the code of a function, and of those it stands for as a decorated or a partial one.

    Nothing of the program is run to find out, so what a callable says of itself is not asked.
    """
    shown = False
    for _ in range(_WRAPPED_AT_MOST):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(function, FunctionType):
            shown = True
            yield function.__code__
            function = vars(function).get("__wrapped__")
        else:
            wrapped = inspect.getattr_static(function, "__wrapped__", None)
            called = inspect.getattr_static(type(function), "__call__", None)
            function = called if wrapped is None else wrapped
        if not callable(function):
            break
    if not shown:
        yield None


def is_torch_internal(frame: FrameType | None) -> bool:
    """Tell whether a frame runs an operator for purposes of torch itself."""
    while frame is not None and (
        ROLES.get(id(frame.f_code)) is SKIPPED or _module(frame) in _FRONTS
    ):
        frame = frame.f_back
    return frame is not None and f"{_module(frame)}.".startswith(_INTERNAL_NAMESPACES)


def _module(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__")
    return name if isinstance(name, str) else ""


def _package(module: str) -> str:
    return module.partition(".")[0]
