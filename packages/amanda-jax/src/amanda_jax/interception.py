"""Where calls of operators are intercepted.

All primitives go through ``Primitive.bind``, whatever transformations are at work. A function with
a derivative of its own, such as ``jax.nn.relu``, is one operator and goes through
``custom_jvp.__call__``. A jitted function of the program is seen as it is traced; one of JAX's own
library is run here equation by equation, so that its operators are those of its caller.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from amanda.driving import Engine, Patches

from amanda_jax._internals import core, custom, pjit
from amanda_jax.execution import OperatorCall, failures
from amanda_jax.model import identify, is_parameter, mark_parameter
from amanda_jax.tracing import in_force, in_program, is_known, is_library

Tensors = Sequence[Any]
Runner = Callable[[Tensors], Tensors]
Path = tuple[int, ...]

_bind, _custom_jvp_call = core.Primitive.bind, custom.custom_jvp.__call__
_run_python_pjit, _infer_params = pjit._run_python_pjit, pjit._infer_params
# What JAX puts in for its own ends, and what gives a parameter in another form.
_AUXILIARY = frozenset({"add_any", "copy_p", "custom_lin", "jit", "pvary", "zeros_like"})
_FORMS = frozenset({"convert_element_type", "copy", "reshape", "squeeze", "transpose"})


def _look_up_jitted(*args: Any) -> Any:
    in_force.refresh()  # another thread may have had decisions forgotten
    return _infer_params(*args)


def _run_jitted(found: Any, flat: Tensors, fun: Any, args: Any, kwargs: Any) -> Any:
    """Call a jitted function by its primitive, without the short cuts by which none is called."""
    if in_force.engine is None:
        return _run_python_pjit(found, flat, fun, args, kwargs)
    outputs = pjit.jit_p.bind(*flat, **found.params)
    result = jax.tree.unflatten(found.out_tree, outputs)
    return result, outputs, found.out_tree, flat, found.params["jaxpr"], None, None, []


def _intercept(primitive: Any, *args: Any, **params: Any) -> Any:
    engine = in_force.engine
    if engine is None:
        return _bind(primitive, *args, **params)
    if primitive is pjit.jit_p:
        function = params["jaxpr"].jaxpr.debug_info
        if is_library(function.func_filename) and in_program():
            return _interpret(engine, params["jaxpr"], args, ())
    outputs = _run_primitive(engine, primitive, primitive.name, args, params)
    return outputs if primitive.multiple_results else outputs[0]


def _intercept_function(function: Any, *args: Any, **kwargs: Any) -> Any:
    engine, type = in_force.engine, function.__name__
    if engine is None:
        return _custom_jvp_call(function, *args, **kwargs)
    if not (engine.wants(type) and in_program()):
        with in_force.paused():
            return _custom_jvp_call(function, *args, **kwargs)
    leaves, tree = jax.tree.flatten((args, kwargs))
    result_tree = None

    def run(leaves: Tensors) -> Tensors:
        nonlocal result_tree
        args, kwargs = jax.tree.unflatten(tree, leaves)
        outputs, result_tree = jax.tree.flatten(_custom_jvp_call(function, *args, **kwargs))
        return outputs

    outputs = _run_operator(engine, type, run, leaves, {})
    return jax.tree.unflatten(result_tree, outputs)


# Put in place while tools are in force.
patches = Patches(
    lambda: [
        (core.Primitive, "bind", _intercept),
        (custom.custom_jvp, "__call__", _intercept_function),
        (pjit, "_run_python_pjit", _run_jitted),
        (pjit, "_infer_params", _look_up_jitted),
    ]
)


def _interpret(engine: Engine, traced: Any, args: Tensors, path: Path) -> Tensors:
    """Run what was traced, each equation under the tools."""
    jaxpr = traced.jaxpr
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*traced.consts, *args), strict=True))

    def read(variables: Iterable[Any]) -> list[Any]:
        return [v.val if isinstance(v, core.Literal) else values[v] for v in variables]

    for index, equation in enumerate(jaxpr.eqns):
        primitive, params, place = equation.primitive, equation.params, (*path, index)
        inputs, type = read(equation.invars), primitive.name
        if primitive is pjit.jit_p:
            outputs = _interpret(engine, params["jaxpr"], inputs, place)
        else:
            if primitive in (custom.custom_jvp_call_p, custom.custom_vjp_call_p):
                type = params["call_jaxpr"].jaxpr.debug_info.func_name
            params = primitive.get_bind_params(params)
            outputs = _run_primitive(engine, primitive, type, inputs, params, place)
        values.update(zip(equation.outvars, outputs, strict=True))
    return read(jaxpr.outvars)


def _run_primitive(
    engine: Engine, primitive: Any, type: str, args: Tensors, params: Any, path: Path = ()
) -> Tensors:
    """Run a primitive, under the tools if it is an operator that they want."""

    def run(args: Tensors) -> Tensors:
        outputs = _bind(primitive, *args, **params)
        return outputs if primitive.multiple_results else [outputs]

    if type not in _AUXILIARY and engine.wants(type) and in_program():
        return _run_operator(engine, type, run, args, params, path)
    if primitive is pjit.jit_p and not engine.caching:
        engine.driver.forgotten(engine)  # has the next call traced anew
    with in_force.paused():
        try:
            outputs = run(args)
            if _has_callbacks(params) and all(map(is_known, outputs)):
                jax.block_until_ready(outputs)  # so that it fails here if one of them does
                jax.effects_barrier()
        except Exception:
            if engine not in failures:
                raise
            failure = failures.pop(engine)
            raise failure from failure.__cause__
    if type in _FORMS and is_parameter(args[0]):
        mark_parameter(outputs[0])
    return outputs


def _has_callbacks(params: dict[str, Any]) -> bool:
    """Whether a primitive that runs other ones was traced with callbacks in them."""
    values = (v for value in params.values() for v in (value if type(value) is tuple else [value]))
    return any(getattr(value, "effects", None) for value in values)


def _run_operator(
    engine: Engine, type: str, run: Runner, args: Tensors, params: Any, path: Path = ()
) -> Tensors:
    """Run an operator under the tools, its tensors apart from its other arguments."""
    operator = identify(type, path)
    plan = engine.plans.get(operator.serial)
    with in_force.paused():
        if plan is not None and plan.is_noop:
            return run(args)
        names = {1: ["operand"], 2: ["lhs", "rhs"]}.get(len(args))
        names = names or [f"operand{i}" for i in range(len(args))]
        places = [i for i, arg in enumerate(args) if isinstance(arg, (jax.Array, np.ndarray))]
        attrs = {**params, **{names[i]: arg for i, arg in enumerate(args) if i not in places}}

        def run_with(tensors: Tensors) -> Tensors:
            given = dict(zip(places, tensors, strict=True))
            return run([given.get(i, arg) for i, arg in enumerate(args)])

        tensors, shown = [args[i] for i in places], [names[i] for i in places]
        return OperatorCall(engine, operator, tensors, shown, attrs, run_with).execute()
