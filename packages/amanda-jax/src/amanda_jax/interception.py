"""Where calls of operators are intercepted.

All primitives go through ``Primitive.bind``, whatever transformations are at work. A function with
a derivative of its own, such as ``jax.nn.relu``, is one operator and goes through
``custom_jvp.__call__``. A jitted function of the program is seen as it is traced; one of JAX's own
is run as if it were not jitted, so that its operators are those of its caller.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from amanda.driving import Engine, Patches

from amanda_jax._internals import core, pjit
from amanda_jax.execution import OperatorCall
from amanda_jax.model import identify, thread
from amanda_jax.tracing import active, in_program, is_known, is_library

_bind = core.Primitive.bind
_calls = {kind: kind.__call__ for kind in (jax.custom_jvp, jax.custom_vjp)}
_run_python_pjit, _infer_params = pjit._run_python_pjit, pjit._infer_params
# What JAX puts in for its own ends, and what gives a parameter in another form.
_AUXILIARY = frozenset({"add_any", "copy_p", "custom_lin", "jit", "pvary", "zeros_like"})
_FORMS = frozenset({"convert_element_type", "copy", "reshape", "squeeze", "transpose"})


def _look_up_jitted(*args: Any) -> Any:
    active.refresh()  # another thread may have had decisions forgotten
    return _infer_params(*args)


def _run_jitted(found: Any, flat: Sequence[Any], fun: Any, args: Any, kwargs: Any) -> Any:
    """Call a jitted function by its primitive, without the short cuts by which none is called."""
    if active.engine is None:
        return _run_python_pjit(found, flat, fun, args, kwargs)
    if is_library(found.params["jaxpr"].jaxpr.debug_info.func_filename) and in_program():
        result = jax.tree.map(jnp.asarray, fun(*args, **kwargs))
    else:
        result = jax.tree.unflatten(found.out_tree, pjit.jit_p.bind(*flat, **found.params))
    return result, [], found.out_tree, flat, found.params["jaxpr"], None, None, []


def _intercept(primitive: Any, *args: Any, **params: Any) -> Any:
    """Call a primitive, under the tools if it is an operator that they want."""
    engine, bind = active.engine, functools.partial(_bind, primitive, **params)
    if engine is None:
        return bind(*args)
    type = primitive.name
    if type not in _AUXILIARY and engine.wants(type) and in_program():
        return _run_operator(engine, type, bind, args, {}, params)
    with active.paused():
        try:
            result = bind(*args)
            if _has_callbacks(params) and all(map(is_known, result)):
                jax.block_until_ready(result)  # so that it fails here if one of them does
                jax.effects_barrier()
        except Exception:
            OperatorCall.raise_failure(engine)  # which XLA has lost
            raise
    if type in _FORMS and (parameter := thread.run.parameter(args[0])):
        thread.run.mark(result, *parameter)
    return result


def _intercept_function(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function with a derivative of its own, likewise."""
    engine, call = active.engine, functools.partial(_calls[type(function)], function)
    if engine is None:
        return call(*args, **kwargs)
    if engine.wants(function.__name__) and in_program():
        return _run_operator(engine, function.__name__, call, args, kwargs, {})
    with active.paused():
        return call(*args, **kwargs)


# Put in place while tools are active.
patches = Patches(
    lambda: [
        (core.Primitive, "bind", _intercept),
        *((kind, "__call__", _intercept_function) for kind in _calls),
        (pjit, "_run_python_pjit", _run_jitted),
        (pjit, "_infer_params", _look_up_jitted),
    ]
)


def _has_callbacks(params: dict[str, Any]) -> bool:
    """Whether a primitive that runs other ones was traced with callbacks in them."""
    values = (v for value in params.values() for v in (value if type(value) is tuple else [value]))
    return any(getattr(value, "effects", None) for value in values)


def _run_operator(
    engine: Engine,
    type: str,
    call: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    params: dict[str, Any],
) -> Any:
    """Call an operator under the tools, its tensors apart from its other arguments."""
    operator = identify(type)
    with active.paused():
        leaves, tree = jax.tree.flatten((args, kwargs))
        result_tree = None
        names = {1: ["operand"], 2: ["lhs", "rhs"]}.get(len(leaves))
        names = names or [f"operand{i}" for i in range(len(leaves))]
        tensors = {n: v for n, v in enumerate(leaves) if isinstance(v, (jax.Array, np.ndarray))}

        def run(inputs: Sequence[Any]) -> Sequence[Any]:
            nonlocal result_tree
            given = dict(zip(tensors, inputs, strict=True))
            args, kwargs = jax.tree.unflatten(
                tree, [given.get(*leaf) for leaf in enumerate(leaves)]
            )
            outputs, result_tree = jax.tree.flatten(call(*args, **kwargs))
            return outputs

        attrs = {names[n]: value for n, value in enumerate(leaves) if n not in tensors}
        shown = [names[n] for n in tensors]
        inputs = list(tensors.values())
        outputs = OperatorCall(engine, operator, inputs, shown, params | attrs, run).execute()
        return jax.tree.unflatten(result_tree, outputs)
