"""What JAX is doing at the moment: compute, stage a function, or differentiate one."""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

import amanda
import jax

from amanda_jax._internals import ad, batching, core

if TYPE_CHECKING:
    from types import CodeType, FrameType

_BACKWARD = ad.backward_pass3.__code__
_LIBRARIES = tuple(
    os.path.dirname(os.path.abspath(str(path))) + os.sep
    for path in (jax.__file__, amanda.__file__, __file__)
)


def primal(tensor: Any) -> Any:
    """A tensor as it is without differentiation."""
    while isinstance(tensor, (ad.JVPTracer, ad.LinearizeTracer)):
        tensor = tensor.primal
    return tensor


def is_known(tensor: Any) -> bool:
    """Whether a primal tensor has a value already."""
    return not isinstance(tensor, core.Tracer)


def is_batched(tensor: Any) -> bool:
    """Whether a primal tensor stands for one example of a batch."""
    return isinstance(tensor, batching.BatchTracer)


def staging() -> Any:
    """The trace that what runs now is written down in; None where it computes."""
    trace = core.trace_ctx.trace
    while trace is not None and not hasattr(trace, "frame"):
        trace = getattr(trace, "parent_trace", None)
    return trace


def in_program() -> bool:
    """Whether what runs now is an operator of the program.

    It is none where JAX computes a gradient, which operators have been seen for, nor where it
    stages one of its own functions, which is seen when it is called.
    """
    trace = staging()
    if trace is not None:
        info = trace.frame.debug_info
        if info is not None and info.traced_for == "jit" and is_own_function(info):
            return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_library(frame.f_code):
        if frame.f_code is _BACKWARD:
            return False
        frame = frame.f_back
    return True


def is_own_function(debug_info: Any) -> bool:
    """Whether what was traced is a function of JAX, such as ``jnp.where``."""
    name = debug_info.func_filename
    return name is not None and _is_library_file(name)


def is_library(code: CodeType) -> bool:
    """Whether code is JAX's or Amanda's."""
    return _is_library_file(code.co_filename)


@functools.cache
def _is_library_file(name: str) -> bool:
    return os.path.abspath(name).startswith(_LIBRARIES)
