"""JAX computes in a thread, stages a function, or differentiates one; this tells which."""

import functools
from typing import Any

from amanda.driving import calling_instructions, places_of

from amanda_jax._internals import ad, core

LIBRARY = "jax", "amanda_jax"


def primal(tensor: Any) -> Any:
    """Return a tensor as it is without differentiation."""
    while isinstance(tensor, (ad.JVPTracer, ad.LinearizeTracer)):
        tensor = tensor.primal
    return tensor


def is_known(tensor: Any) -> bool:
    """Tell whether a primal tensor has a value already."""
    return not isinstance(tensor, core.Tracer)


def staging() -> Any:
    """Return the trace that writes down what runs now; None where it is computed."""
    trace = core.trace_ctx.trace
    while trace is not None and not hasattr(trace, "frame"):
        trace = getattr(trace, "parent_trace", None)
    return trace


def in_program() -> bool:
    """Tell whether what runs now is an operator of the program.

    It is none where JAX computes a gradient, since the operators of that have run already, nor
    where JAX stages a function of its own, whose operators are seen when it is called.
    """
    trace = staging()
    info = trace and trace.frame.debug_info
    if info and info.traced_for == "jit" and is_library(info.func_filename):
        return False
    return all(code is not ad.backward_pass3.__code__ for code, _ in calling_instructions(LIBRARY))


@functools.cache
def is_library(file: str | None) -> bool:
    """Tell whether a file is JAX's or Amanda's."""
    return file is not None and file.startswith(places_of(LIBRARY))
