"""What the tools decided is carried out at once, or becomes part of what is being staged."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from amanda import AmandaError, Operator
from amanda.driving import Action, Execution, Forward, StagedCall
from jax.custom_derivatives import SymbolicZero
from jax.experimental import io_callback

from amanda_jax._internals import batching, source
from amanda_jax.model import operators
from amanda_jax.tracing import is_known, primal, staging

Tensors = Sequence[Any]

_substitute: Any = jax.custom_jvp(lambda original, substitute: substitute)
_substitute.defjvp(lambda primals, tangents: (_substitute(*primals), tangents[0]))


class OperatorCall(StagedCall):
    """This is a call of a primitive, or of a function that is one operator."""

    def shown(self, **known: Any) -> Execution:
        """Return what the analysis routines see of it, without what differentiation adds."""
        execution = super().shown(**known)
        execution.inputs = list(map(primal, execution.inputs))
        execution.outputs = execution.outputs and list(map(primal, execution.outputs))
        return execution

    def straight_through(self, original: Any, substitute: Any) -> Any:
        """Return the substitute, with its gradient passing to the original."""
        return _substitute(original, jnp.asarray(substitute))

    def run_watched(self, inputs: Tensors) -> Tensors:
        """Run it with a derivative that the tools see."""
        backward_operator = operators.backward(self.operator, "_vjp")
        wanted: list[bool] = []  # whether each input needs a gradient

        @jax.custom_vjp
        def watched(inputs: Tensors, given: Tensors) -> Any:  # by the program, in their place
            return tuple(self.run(inputs))

        def forward(*arguments: Any) -> Any:
            wanted[:] = [tensor.perturbed for tensor in arguments[0]]
            values, given = jax.tree.map(lambda tensor: tensor.value, arguments)
            with self.active.paused():
                outputs, vjp = jax.vjp(lambda *tensors: tuple(self.run(tensors)), *values)
            return outputs, (vjp, values, given, outputs)

        def backward(kept: Any, incoming: Tensors) -> Any:
            vjp, values, given, outputs = kept

            def run(grads: Tensors) -> Tensors:
                pairs = zip(grads, outputs, strict=True)
                filled = [jnp.zeros_like(o) if g is None else jnp.asarray(g) for g, o in pairs]
                found = zip(vjp(tuple(filled)), wanted, strict=True)
                return [g if want and g.dtype != jax.dtypes.float0 else None for g, want in found]

            grads = [None if isinstance(grad, SymbolicZero) else grad for grad in incoming]
            call = dataclasses.replace(self, inputs=given, saw=values)
            try:
                return list(call.backward(backward_operator, grads, outputs, run)), None
            except AmandaError as error:
                _end_causes(error)
                raise

        watched.defvjp(forward, backward, symbolic_zeros=True)
        return list(watched(list(inputs), list(self.inputs)))

    def run_action(
        self, action: Action, given: Tensors, like: Tensors, operator: Operator, forward: Forward
    ) -> Tensors:
        """Run a routine on what is not differentiated, unless it is to be differentiated itself."""
        if action.differentiable:
            return super().run_action(action, given, like, operator, forward)
        asked = action.asks(given, forward)
        taken = (*given, *like, *asked.values())
        if not action.pure and any(isinstance(t, batching.BatchTracer) for t in taken):
            raise self.refused(action, operator, "batched by JAX")
        replaced = _constants(like)
        forward = Forward.of(dict(zip(asked, _constants(asked.values()), strict=True)), forward.run)
        results = super().run_action(action, _constants(given), replaced, operator, forward)
        return [o if r is k else r for o, k, r in zip(like, replaced, results, strict=True)]

    def is_staged(self, tensors: Tensors) -> bool:
        """Tell whether a routine that is given these tensors waits until what is staged runs."""
        return staging() is not None or not all(is_known(primal(t)) for t in tensors)

    def call_back(self, call: Callable[..., Tensors], given: Tensors, like: Tensors) -> Tensors:
        """Have what is staged call a function at each of its executions, in their order."""

        def compute(*arrays: Any) -> Tensors:
            return list(map(np.asarray, call(*arrays)))

        return list(io_callback(compute, like, *given, ordered=True))


def _constants(tensors: Iterable[Any]) -> list[Any]:
    """List tensors that nothing is differentiated through, now or when this is traced again."""
    found = map(primal, tensors)
    return [t if t is None or is_known(t) else jax.lax.stop_gradient(t) for t in found]


def _end_causes(error: BaseException) -> None:
    """End the causes of an error with JAX's mark, which JAX else puts in the place of one."""
    while error.__cause__ is not None:
        error = error.__cause__
    error.__cause__ = source.JaxStackTraceBeforeTransformation()
