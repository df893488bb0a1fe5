"""Where calls of operators are intercepted.

All primitives go through ``Primitive.bind``, whatever transformations are at work. A function with
a derivative of its own, such as ``jax.nn.relu``, is one operator and goes through
``custom_jvp.__call__``. A jitted function of the program is seen as it is traced; one of JAX's own
is run as if it were not jitted, so that its operators are those of its caller.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from amanda.driving import Engine, Patches

from amanda_jax._internals import core, pjit
from amanda_jax.execution import OperatorCall
from amanda_jax.model import identify, thread
from amanda_jax.tracing import active, in_program, is_known, is_library

Tensors = Sequence[Any]
Runner = Callable[[Tensors], Tensors]

_bind = core.Primitive.bind
_calls = {kind: kind.__call__ for kind in (jax.custom_jvp, jax.custom_vjp)}
_run_python_pjit, _infer_params = pjit._run_python_pjit, pjit._infer_params
# What JAX puts in for its own ends, and what gives a parameter in another form.
_AUXILIARY = frozenset({"add_any", "copy_p", "custom_lin", "jit", "pvary", "zeros_like"})
_FORMS = frozenset({"convert_element_type", "copy", "reshape", "squeeze", "transpose"})


def _look_up_jitted(*args: Any) -> Any:
    active.refresh()  # another thread may have had decisions forgotten
    return _infer_params(*args)


def _run_jitted(found: Any, flat: Tensors, fun: Any, args: Any, kwargs: Any) -> Any:
    """Call a jitted function by its primitive, without the short cuts by which none is called."""
    if active.engine is None:
        return _run_python_pjit(found, flat, fun, args, kwargs)
    if is_library(found.params["jaxpr"].jaxpr.debug_info.func_filename) and in_program():
        result = jax.tree.map(jnp.asarray, fun(*args, **kwargs))
    else:
        result = jax.tree.unflatten(found.out_tree, pjit.jit_p.bind(*flat, **found.params))
    return result, [], found.out_tree, flat, found.params["jaxpr"], None, None, []


def _intercept(primitive: Any, *args: Any, **params: Any) -> Any:
    engine = active.engine
    if engine is None:
        return _bind(primitive, *args, **params)
    outputs = _run_primitive(engine, primitive, args, params)
    return outputs if primitive.multiple_results else outputs[0]


def _intercept_function(function: Any, *args: Any, **kwargs: Any) -> Any:
    engine, call = active.engine, functools.partial(_calls[type(function)], function)
    if engine is None:
        return call(*args, **kwargs)
    if not (engine.wants(function.__name__) and in_program()):
        with active.paused():
            return call(*args, **kwargs)
    leaves, tree = jax.tree.flatten((args, kwargs))
    result_tree = None

    def run(leaves: Tensors) -> Tensors:
        nonlocal result_tree
        args, kwargs = jax.tree.unflatten(tree, leaves)
        outputs, result_tree = jax.tree.flatten(call(*args, **kwargs))
        return outputs

    outputs = _run_operator(engine, function.__name__, run, leaves, {})
    return jax.tree.unflatten(result_tree, outputs)


# Put in place while tools are active.
patches = Patches(
    lambda: [
        (core.Primitive, "bind", _intercept),
        *((kind, "__call__", _intercept_function) for kind in _calls),
        (pjit, "_run_python_pjit", _run_jitted),
        (pjit, "_infer_params", _look_up_jitted),
    ]
)


def _run_primitive(engine: Engine, primitive: Any, args: Tensors, params: Any) -> Tensors:
    """Run a primitive, under the tools if it is an operator that they want."""

    def run(args: Tensors) -> Tensors:
        outputs = _bind(primitive, *args, **params)
        return outputs if primitive.multiple_results else [outputs]

    type = primitive.name
    if type not in _AUXILIARY and engine.wants(type) and in_program():
        return _run_operator(engine, type, run, args, params)
    with active.paused():
        try:
            outputs = run(args)
            if _has_callbacks(params) and all(map(is_known, outputs)):
                jax.block_until_ready(outputs)  # so that it fails here if one of them does
                jax.effects_barrier()
        except Exception:
            OperatorCall.raise_failure(engine)  # which XLA has lost
            raise
    if type in _FORMS and (parameter := thread.run.parameter(args[0])):
        thread.run.mark(outputs[0], *parameter)
    return outputs


def _has_callbacks(params: dict[str, Any]) -> bool:
    """Whether a primitive that runs other ones was traced with callbacks in them."""
    values = (v for value in params.values() for v in (value if type(value) is tuple else [value]))
    return any(getattr(value, "effects", None) for value in values)


def _run_operator(engine: Engine, type: str, run: Runner, args: Tensors, params: Any) -> Tensors:
    """Run an operator under the tools, its tensors apart from its other arguments."""
    operator = identify(type)
    with active.paused():
        names = {1: ["operand"], 2: ["lhs", "rhs"]}.get(len(args))
        names = names or [f"operand{i}" for i in range(len(args))]
        places = [i for i, arg in enumerate(args) if isinstance(arg, (jax.Array, np.ndarray))]
        attrs = {**params, **{names[i]: arg for i, arg in enumerate(args) if i not in places}}

        def run_with(tensors: Tensors) -> Tensors:
            given = dict(zip(places, tensors, strict=True))
            return run([given.get(i, arg) for i, arg in enumerate(args)])

        tensors, shown = [args[i] for i in places], [names[i] for i in places]
        return OperatorCall(engine, operator, tensors, shown, attrs, run_with).execute()
