"""Where calls of operators are intercepted.

All primitives go through ``Primitive.bind``, whatever transformations are at work. A function with
a derivative of its own, such as ``jax.nn.relu``, is one operator and goes through
``custom_jvp.__call__``. A jitted function of the program is seen as it is traced; one of JAX's own
library is run here equation by equation, so that its operators are those of its caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from amanda_jax import in_force
from amanda_jax._internals import core, custom, pjit
from amanda_jax.execution import OperatorCall, failures
from amanda_jax.model import identify, is_parameter, mark_parameter, thread
from amanda_jax.tracing import in_program, is_known, is_own_function, primal

if TYPE_CHECKING:
    from amanda import AmandaError
    from amanda.driving import Engine

Tensors = Sequence[Any]

_bind = core.Primitive.bind
_custom_jvp_call = custom.custom_jvp.__call__
_run_python_pjit = pjit._run_python_pjit
_infer_params = pjit._infer_params
# What JAX puts in for its own ends.
_AUXILIARY = frozenset({"add_any", "copy_p", "custom_lin", "jit", "pvary", "zeros_like"})
# What gives a parameter in another form.
_FORMS = frozenset({"convert_element_type", "copy", "reshape", "squeeze", "transpose"})


def patches() -> list[tuple[Any, str, Any]]:
    """What is changed in JAX while tools are in force."""
    return [
        (core.Primitive, "bind", _intercept),
        (custom.custom_jvp, "__call__", _intercept_function),
        (pjit, "_run_python_pjit", _run_jitted),
        (pjit, "_infer_params", _look_up_jitted),
    ]


def _look_up_jitted(*args: Any) -> Any:
    in_force.refresh()
    return _infer_params(*args)


def _run_jitted(found: Any, flat: Tensors, fun: Any, args: Any, kwargs: Any) -> Any:
    """Call a jitted function by its primitive, without the short cuts by which none is called."""
    if in_force.engine_now() is None:
        return _run_python_pjit(found, flat, fun, args, kwargs)
    outputs = pjit.jit_p.bind(*flat, **found.params)
    result = jax.tree.unflatten(found.out_tree, outputs)
    return result, outputs, found.out_tree, flat, found.params["jaxpr"], None, None, []


def _intercept(primitive: Any, *args: Any, **params: Any) -> Any:
    engine = in_force.engine_now()
    if engine is None:
        return _bind(primitive, *args, **params)
    if primitive is pjit.jit_p:
        jaxpr = params["jaxpr"]
        if is_own_function(jaxpr.jaxpr.debug_info) and in_program():
            return _interpret(engine, jaxpr.jaxpr, jaxpr.consts, args, ())
    elif _wanted(engine, primitive.name) and in_program():
        outputs = _primitive_call(engine, primitive, args, params)
        return outputs if primitive.multiple_results else outputs[0]
    return _pass(engine, primitive, args, params)


def _intercept_function(function: Any, *args: Any, **kwargs: Any) -> Any:
    engine, type = in_force.engine_now(), function.__name__
    if engine is None:
        return _custom_jvp_call(function, *args, **kwargs)
    if not (_wanted(engine, type) and in_program()):
        with in_force.paused():
            return _custom_jvp_call(function, *args, **kwargs)
    leaves, tree = jax.tree.flatten((args, kwargs))
    result_trees = []

    def run(leaves: Tensors) -> Tensors:
        args, kwargs = jax.tree.unflatten(tree, leaves)
        outputs, result_tree = jax.tree.flatten(_custom_jvp_call(function, *args, **kwargs))
        result_trees.append(result_tree)
        return outputs

    outputs = _execute(engine, type, run, leaves, {}, ())
    return jax.tree.unflatten(result_trees[-1], outputs)


def _interpret(
    engine: Engine, jaxpr: Any, consts: Tensors, args: Tensors, path: tuple[int, ...]
) -> list[Any]:
    """Run what was traced, each equation under the tools."""
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))

    def read(variables: Iterable[Any]) -> list[Any]:
        return [v.val if isinstance(v, core.Literal) else values[v] for v in variables]

    for index, equation in enumerate(jaxpr.eqns):
        primitive, inputs, place = equation.primitive, read(equation.invars), (*path, index)
        if primitive is pjit.jit_p:
            inner = equation.params["jaxpr"]
            outputs: Any = _interpret(engine, inner.jaxpr, inner.consts, inputs, place)
        else:
            params = primitive.get_bind_params(equation.params)
            type = primitive.name
            if primitive in (custom.custom_jvp_call_p, custom.custom_vjp_call_p):
                type = equation.params["call_jaxpr"].jaxpr.debug_info.func_name
            if _wanted(engine, type):
                outputs = _primitive_call(engine, primitive, inputs, params, type, place)
            else:
                outputs = _pass(engine, primitive, inputs, params)
                outputs = outputs if primitive.multiple_results else [outputs]
        values.update(zip(equation.outvars, outputs, strict=True))
    return read(jaxpr.outvars)


def _wanted(engine: Engine, type: str) -> bool:
    return type not in _AUXILIARY and engine.wants(type)


def _pass(engine: Engine, primitive: Any, args: Tensors, params: Mapping[str, Any]) -> Any:
    """Bind a primitive that is no operator at which tools look.

    What it holds may have been traced under them: their callbacks are waited for, so that it fails
    here where one of them does.
    """
    if primitive is pjit.jit_p and not engine.caching:
        in_force.forget(engine)  # has the next call traced anew
    with in_force.paused():
        try:
            outputs = _bind(primitive, *args, **params)
            if _has_effects(params) and all(is_known(t) for t in jax.tree.leaves(outputs)):
                jax.block_until_ready(outputs)
                jax.effects_barrier()
        except Exception:
            failure: AmandaError | None = failures.pop(engine, None)
            if failure is not None:
                raise failure from failure.__cause__
            raise
    if primitive.name in _FORMS and is_parameter(args[0]) and thread.run is not None:
        mark_parameter(primal(outputs), thread.run)
    return outputs


def _has_effects(params: Mapping[str, Any]) -> bool:
    """Whether a primitive of control flow, or a call, holds callbacks."""
    values = (v for value in params.values() for v in (value if type(value) is tuple else [value]))
    return any(getattr(value, "effects", None) for value in values)


def _primitive_call(
    engine: Engine,
    primitive: Any,
    args: Tensors,
    params: Mapping[str, Any],
    type: str | None = None,
    path: tuple[int, ...] = (),
) -> Tensors:
    def run(args: Tensors) -> Tensors:
        outputs = _bind(primitive, *args, **params)
        return outputs if primitive.multiple_results else [outputs]

    return _execute(engine, type or primitive.name, run, args, params, path)


def _execute(
    engine: Engine,
    type: str,
    run: Callable[[Tensors], Tensors],
    args: Tensors,
    params: Mapping[str, Any],
    path: tuple[int, ...],
) -> Tensors:
    """Run an operator under the tools, its tensors apart from its other arguments."""
    places = [i for i, arg in enumerate(args) if isinstance(arg, (jax.Array, np.ndarray))]
    names = {1: ["operand"], 2: ["lhs", "rhs"]}.get(len(args))
    names = names or [f"operand{i}" for i in range(len(args))]
    others = {names[i]: arg for i, arg in enumerate(args) if i not in places}

    def run_with(tensors: Tensors) -> Tensors:
        filled = list(args)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        return run(filled)

    operator = identify(type, path)
    plan = engine.plans.get(operator.serial)
    with in_force.paused():
        if plan is not None and plan.idle:
            return run(args)
        inputs, input_names = [args[i] for i in places], [names[i] for i in places]
        call = OperatorCall(engine, operator, inputs, input_names, {**params, **others}, run_with)
        return call.execute()
