"""This module alone uses private names of JAX, which it looks up when the driver is loaded."""

from typing import Any

from amanda.driving import PrivateNames

_find = PrivateNames("amanda-jax", "jax").find

# What every call of an operator goes through, and the trace that takes it.
core: Any = _find("jax._src.core", "Primitive.bind", "Tracer", "eval_context", "trace_ctx.trace")
# Traces of differentiation and of vmap, and the function that computes gradients from a trace.
ad: Any = _find("jax._src.interpreters.ad", "JVPTracer", "LinearizeTracer", "backward_pass3")
batching: Any = _find("jax._src.interpreters.batching", "BatchTracer")
# Calls of what is jitted.
pjit: Any = _find("jax._src.pjit", "jit_p", "_infer_params", "_run_python_pjit")
# Name scopes, and what JAX puts into the chain of causes of an exception.
source: Any = _find(
    "jax._src.source_info_util",
    *("current_name_stack", "reset_name_stack", "Scope", "JaxStackTraceBeforeTransformation"),
)
