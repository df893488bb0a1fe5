"""Calls of operators are intercepted in two places.

All primitives go through ``Primitive.bind``, whatever transformations are at work. A function with
a derivative of its own, such as ``jax.nn.relu``, is one operator and goes through
``custom_jvp.__call__``. A jitted function of the program is seen as it is traced; one of JAX's own
is run as if it were not jitted, so that its operators are those of its caller.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from amanda.driving import ActiveEngine, Engine, Patches

from amanda_jax._internals import core, pjit
from amanda_jax.execution import OperatorCall
from amanda_jax.model import identify, thread
from amanda_jax.tracing import in_program, is_known, is_library

_bind = core.Primitive.bind
_calls = {kind: kind.__call__ for kind in (jax.custom_jvp, jax.custom_vjp)}
_run_python_pjit, _infer_params = pjit._run_python_pjit, pjit._infer_params
_key = jax.make_user_context(None)  # a part of the key of all that JAX traces
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
        return _run_operator(engine, type, bind, (args, {}), params)
    with active.paused():
        try:
            result = bind(*args)
            runs = jax.tree.leaves(params)  # which may have been traced with callbacks in them
            if any(getattr(run, "effects", None) for run in runs) and all(map(is_known, result)):
                jax.block_until_ready(result)  # so that it fails here if one of them does
                jax.effects_barrier()
        except Exception:
            OperatorCall.raise_failure(engine)  # which XLA has lost
            raise
    if type in _FORMS and (parameter := thread.run.parameter(args[0])):
        thread.run.mark(result, parameter)
    return result


def _intercept_function(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function with a derivative of its own, under the tools if it is one that they want."""
    engine, call = active.engine, functools.partial(_calls[type(function)], function)
    if engine is None:
        return call(*args, **kwargs)
    if engine.wants(function.__name__) and in_program():
        return _run_operator(engine, function.__name__, call, (args, kwargs), {})
    with active.paused():
        return call(*args, **kwargs)


_patches: Any = [
    (core.Primitive, "bind", _intercept),
    *((kind, "__call__", _intercept_function) for kind in _calls),
    (pjit, "_run_python_pjit", _run_jitted),
    (pjit, "_infer_params", _look_up_jitted),
]
# A key that is entered is never left: the next one takes its place.
active = ActiveEngine(lambda e: _key(e and e.stamp).__enter__(), Patches(lambda: _patches))


def _run_operator(engine: Engine, type: str, call: Any, arguments: Any, params: Any) -> Any:
    """Run an operator under the tools, its tensors apart from its other arguments."""
    leaves, tree = jax.tree.flatten(arguments)
    names = {1: ["operand"], 2: ["lhs", "rhs"]}.get(len(leaves))
    given = dict(zip(names or [f"operand{i}" for i in range(len(leaves))], leaves, strict=True))
    tensors = {n: leaf for n, leaf in given.items() if isinstance(leaf, (jax.Array, np.ndarray))}
    attrs = params | {name: leaf for name, leaf in given.items() if name not in tensors}
    result_tree = None

    def run(inputs: Sequence[Any]) -> Sequence[Any]:
        nonlocal result_tree
        now = given | dict(zip(tensors, inputs, strict=True))
        args, kwargs = jax.tree.unflatten(tree, now.values())
        outputs, result_tree = jax.tree.flatten(call(*args, **kwargs))
        return outputs

    shown = list(tensors.values()), list(tensors), attrs
    outputs = OperatorCall(engine, identify(type), *shown, run).execute()
    return jax.tree.unflatten(result_tree, outputs)
