"""What JAX does in a thread (compute, stage a function, differentiate one), and for which tools."""

import functools
from typing import Any

import jax
from amanda.driving import ActiveEngine, Engine, calling_instructions, places_of

from amanda_jax._internals import ad, core

_LIBRARIES = places_of(["jax", "amanda_jax"])
_key = jax.make_user_context(None)  # a part of the key of all that JAX traces


def _put_into_key(engine: Engine | None) -> None:
    _key(engine and engine.stamp).__enter__()  # and is never left: the next one takes its place


active = ActiveEngine(_put_into_key)


def primal(tensor: Any) -> Any:
    """A tensor as it is without differentiation."""
    while isinstance(tensor, (ad.JVPTracer, ad.LinearizeTracer)):
        tensor = tensor.primal
    return tensor


def is_known(tensor: Any) -> bool:
    """Whether a primal tensor has a value already."""
    return not isinstance(tensor, core.Tracer)


def staging() -> Any:
    """The trace that writes down what runs now; None where it is computed."""
    trace = core.trace_ctx.trace
    while trace is not None and not hasattr(trace, "frame"):
        trace = getattr(trace, "parent_trace", None)
    return trace


def in_program() -> bool:
    """Whether what runs now is an operator of the program.

    It is none where JAX computes a gradient, since the operators of that have run already, nor
    where JAX stages a function of its own, whose operators are seen when it is called.
    """
    trace = staging()
    info = None if trace is None else trace.frame.debug_info
    if info is not None and info.traced_for == "jit" and is_library(info.func_filename):
        return False
    around = calling_instructions(is_library)
    return all(code is not ad.backward_pass3.__code__ for code, _ in around)


@functools.cache
def is_library(file: str | None) -> bool:
    """Whether a file is JAX's or Amanda's."""
    return file is not None and file.startswith(_LIBRARIES)
