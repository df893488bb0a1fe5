"""Stack frames are told apart here: which are call sites of the model, and what was given to them.

Frames are looked at by the identity of their code, since that is what an address is made of.
"""

from __future__ import annotations

import inspect
import sys
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.utils.checkpoint as checkpointing

from amanda_torch._internals import (
    APPLY_IN_PYTHON,
    OpOverload,
    OpOverloadPacket,
    call_impl,
    wrapped_call_impl,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

# Call sites, innermost first: what comes before one, its code, and its instruction's offset.
Way = tuple[Any, ...]

_T = TypeVar("_T")

# What the frame of a function that is no call site means to an address: the code of a module begins
# there; it goes on as it was when a checkpoint was made; nothing.
ENDS, RESUMES, SKIPPED = "ends", "resumes", "skipped"

ROLES: dict[int, str | int] = {}
"""What a frame is to an address, by identity of its code; most are call sites, and not in here.

A number is the identity of the code for which this one stands, since it is equal to it.
"""

COMPILED: set[int] = set()
"""Identities of the code that runs what TorchScript compiled, whose lines no frame has."""

# Call sites looked at for one address: recursion must not make it grow without bound.
DEEPEST = 32


def not_a_call_site(function: _T) -> _T:
    """Leave the frames of a function, or of a class, out of every address; this is a decorator."""
    return _with_role(SKIPPED, function)


def runs_compiled(function: _T) -> _T:
    """Note that a function runs compiled code, and is no call site either; this is a decorator."""
    COMPILED.update(id(code) for code in _codes(function))
    return not_a_call_site(function)


def calls_a_module(function: _T) -> _T:
    """Have every address end at a function that calls a module's code; this is a decorator."""
    return _with_role(ENDS, function)


def resumes_an_address(function: _T) -> _T:
    """Have addresses go on from a function with the thread's ``origin``; this is a decorator."""
    return _with_role(RESUMES, function)


def _with_role(role: str, function: _T) -> _T:
    ROLES.update((id(code), role) for code in _codes(function))
    return function


def _codes(value: Any) -> Iterator[CodeType]:
    """List the code of a function, or of a class's methods, and of all functions within them."""
    if isinstance(value, type):
        for member in vars(value).values():
            if isinstance(member, (FunctionType, staticmethod, classmethod)):
                yield from _codes(getattr(member, "__func__", member))
    elif isinstance(value, CodeType):
        yield value
        for constant in value.co_consts:
            if isinstance(constant, CodeType):
                yield from _codes(constant)
    elif callable(value):
        yield from _codes(getattr(inspect.unwrap(value), "__code__", None))


def continued(way: Way, origin: Way) -> Way:
    """Return the call sites that go on from where a checkpoint was made."""
    if not origin:
        return way
    before, code, offset = origin
    return continued(way, before), code, offset


def call_sites(frame: FrameType | None, origin: Way) -> Way:
    """Return the call sites that lead from the code of a module to a frame in it.

    Args:
        frame: the last call site.
        origin: the call sites from which a checkpoint is recomputed.
    """
    way: Way = ()
    deep = 0
    while frame is not None:
        code = id(frame.f_code)
        role = ROLES.get(code)
        if role is None:
            way = way, code, frame.f_lasti
        elif role is ENDS:
            break
        elif role is SKIPPED:
            frame = frame.f_back
            continue
        elif role is RESUMES:
            return continued(way, origin)
        else:
            way = way, role, frame.f_lasti
        deep += 1
        if deep == DEEPEST:
            break
        frame = frame.f_back
    return way


def first_argument(frame: FrameType) -> Any:
    """Return what a function was given first (``self`` in a method), None if it takes nothing."""
    code = frame.f_code
    return argument(frame, code.co_varnames[0]) if code.co_argcount else None


def argument(frame: FrameType, name: str) -> Any:
    """Return an argument of a function by its name.

    Before Python 3.13 a look at the local variables leaves a copy of them in the frame, which
    would keep a model alive that the program has let go of. It is emptied, unless the program
    holds it too (``locals()``).
    """
    variables = frame.f_locals
    value = variables.get(name)
    held_by_frame_alone = 3  # the frame, this function, and the call that counts
    if sys.version_info < (3, 13) and sys.getrefcount(variables) == held_by_frame_alone:
        variables.clear()
    return value


# How a call gets to a module's forward depends on its hooks.
calls_a_module(wrapped_call_impl)
calls_a_module(call_impl)
# How torch.ops gets to an operator, a Function to its forward, and a checkpoint to what it runs
# says nothing of who asks for it.
not_a_call_site(OpOverload.__call__)
not_a_call_site(OpOverloadPacket.__call__)
if APPLY_IN_PYTHON:
    not_a_call_site(torch.autograd.Function.apply)
for _value in vars(checkpointing).values():
    if getattr(_value, "__module__", None) == checkpointing.__name__:
        not_a_call_site(_value)
