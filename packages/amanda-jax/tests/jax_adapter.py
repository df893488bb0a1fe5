"""Has the conformance suite drive JAX, as it is and jitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from amanda.testing import Adapter, Model, Program, Step
from amanda_jax import instrument
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

Array = np.ndarray[Any, Any]

# JAX takes a tensor apart by several operators; the suite wants one that has several results.
unstack = Primitive("unstack")
unstack.multiple_results = True


@unstack.def_impl
def _unstack(x: Any, *, axis: int) -> list[Any]:
    return [lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis])]


@unstack.def_abstract_eval
def _unstacked_shapes(x: Any, *, axis: int) -> list[Any]:
    return [x.update(shape=x.shape[:axis] + x.shape[axis + 1 :])] * x.shape[axis]


def _stack(grads: Any, x: Any, *, axis: int) -> list[Any]:
    return [jnp.stack([ad.instantiate_zeros(grad) for grad in grads], axis)]


def _unstack_tangents(primals: Any, tangents: Any, *, axis: int) -> Any:
    return unstack.bind(*primals, axis=axis), unstack.bind(
        *map(ad.instantiate_zeros, tangents), axis=axis
    )


ad.primitive_jvps[unstack] = _unstack_tangents
ad.primitive_transposes[unstack] = _stack
mlir.register_lowering(unstack, mlir.lower_fun(_unstack, multiple_results=True))

FUNCTIONS = {
    "matmul": lambda x, w: lax.dot_general(x, w, (((x.ndim - 1,), (0,)), ((), ()))),
    "add": jnp.add,
    "multiply": jnp.multiply,
    "relu": jax.nn.relu,
    "sigmoid": jax.nn.sigmoid,
    "select": lambda mask, x, y: lax.select_n(~mask, x, y),
    "unstack": lambda x: unstack.bind(x, axis=0),
    "range": lambda: lax.iota(jnp.float32, 3),
}


def loop(times: int, body: Callable[[Any], Any], value: Any) -> Any:
    return lax.fori_loop(0, times, lambda turn, value: body(value), value)


class JaxModel(Model):
    def __init__(self, program: Program, parameters: Mapping[str, Array], jit: bool) -> None:
        self._parameters = {name: jnp.asarray(array) for name, array in parameters.items()}

        def call(step: Step, operands: list[Any]) -> Sequence[Any]:
            with jax.named_scope(step.layer):
                result = FUNCTIONS[step.kind](*operands)
            return result if isinstance(result, (list, tuple)) else [result]

        @instrument
        def network(parameters: Any, inputs: Any, switches: Any) -> Any:
            return program.run(call, {**inputs, **parameters}, switches, loop)

        def total(wanted: Any, parameters: Any, inputs: Any, switches: Any) -> Any:
            parameters, inputs = (
                {name: wanted.get(name, value) for name, value in values.items()}
                for values in (parameters, inputs)
            )
            return network(parameters, inputs, switches).sum()

        gradient = jax.grad(total)

        def total_gradient(wanted: Any, of: str, *arguments: Any) -> Any:
            return gradient(wanted, *arguments)[of].sum()

        second = jax.grad(total_gradient)
        self._network = jax.jit(network, static_argnums=2) if jit else network
        self._gradient = jax.jit(gradient, static_argnums=3) if jit else gradient
        self._second = jax.jit(second, static_argnums=(1, 4)) if jit else second

    def forward(self, inputs: Mapping[str, Array], switches: Collection[str] = ()) -> Array:
        inputs = {name: jnp.asarray(array) for name, array in inputs.items()}
        return np.asarray(self._network(self._parameters, inputs, tuple(switches)))

    def gradients(
        self, wrt: Sequence[str], inputs: Mapping[str, Array], switches: Collection[str] = ()
    ) -> dict[str, Array]:
        inputs = {name: jnp.asarray(array) for name, array in inputs.items()}
        wanted = {name: (inputs | self._parameters)[name] for name in wrt}
        found = self._gradient(wanted, self._parameters, inputs, tuple(switches))
        return {name: np.asarray(grad) for name, grad in found.items()}

    def second_gradients(
        self, of: str, wrt: Sequence[str], inputs: Mapping[str, Array]
    ) -> dict[str, Array]:
        inputs = {name: jnp.asarray(array) for name, array in inputs.items()}
        wanted = {name: (inputs | self._parameters)[name] for name in {of, *wrt}}
        found = self._second(wanted, of, self._parameters, inputs, ())
        return {name: np.asarray(found[name]) for name in wrt}

    def train(self, mode: bool) -> None:
        pass  # a function is given what depends on it

    def parameter(self, name: str) -> Array:
        return np.asarray(self._parameters[name])


class JaxAdapter(Adapter):
    backend = vocabulary = "jax"
    types = {
        "matmul": "dot_general",
        "add": "add",
        "multiply": "mul",
        "relu": "relu",
        "sigmoid": "logistic",
        "select": "select_n",
        "unstack": "unstack",
        "range": "iota",
    }
    input_names = {"matmul": ("lhs", "rhs")}
    attrs = {"unstack": {"axis": 0}}
    eager = True
    differentiable = True
    none_for_unneeded_inputs = True
    none_for_unused_outputs = True
    lacks = {
        "Modules": "JAX has functions alone",
        "Permanent": "its arrays cannot be written to, and are arguments of functions",
    }
    one_in_loop = True
    jit = False

    def build(self, program: Program, parameters: Mapping[str, Array]) -> JaxModel:
        return JaxModel(program, parameters, self.jit)

    def tensor(self, array: Array) -> Any:
        with jax.enable_x64(True):  # else there are no tensors of another dtype to refuse
            return jnp.asarray(array)

    def array(self, tensor: Any) -> Array:
        return np.asarray(tensor)


class JittedAdapter(JaxAdapter):
    eager = False
    parameters_known = False
    jit = True
