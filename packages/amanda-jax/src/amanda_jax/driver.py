"""The driver is told which tools are active in a thread, and answers them about tensors."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from amanda import Driver, ValueUnavailableError
from amanda.driving import Engine, Execution, Parameter, TensorInfo
from jax.experimental import io_callback

from amanda_jax import model
from amanda_jax._internals import core, source
from amanda_jax.interception import active
from amanda_jax.tracing import is_known, primal, staging


class Variable:
    """A variable is state of a tool: an array to compute with, also in what is compiled."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def assign(self, value: Any) -> None:
        """Give it another value of the same shape and dtype."""
        self.array = np.broadcast_to(np.asarray(value, self.array.dtype), self.array.shape)

    def __jax_array__(self) -> Any:
        if staging() is None:
            return jnp.asarray(self.array)
        return io_callback(lambda: self.array, self.array, ordered=True)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.array, dtype)


class JaxDriver(Driver):
    """This driver has JAX obey the tools, in jitted functions and in others."""

    backend = vocabulary = "jax"
    xp = jnp
    active = active

    def activate(self, engine: Engine | None) -> None:
        """From now on this thread runs under ``engine``."""
        active.put(engine)

    def suspend(self) -> Any:
        """Begin anew, outside of all models and of all that is being traced."""
        outside = contextlib.ExitStack()
        outside.enter_context(core.eval_context())
        outside.enter_context(source.reset_name_stack())
        run, model.thread.run = model.thread.run, model.Run(None)
        return run, outside, active.suspend()

    def resume(self, suspended: Any, engine: Engine | None) -> None:
        """Go on in the routine that was suspended."""
        model.thread.run, outside, paused = suspended
        outside.close()
        active.put(engine, paused)

    def value(self, tensor: Any) -> Any:
        """Return a tensor as a NumPy array, unless it is being traced."""
        tensor = primal(tensor)
        if not is_known(tensor):
            raise ValueUnavailableError(f"{tensor} has a value only when what is traced runs")
        return np.asarray(tensor)

    def variable(self, initial: Any, execution: Execution) -> Variable:
        """Make an array that may be given other values."""
        return Variable(np.array(initial))

    def incompatible_reason(self, original: Any, substitute: Any) -> str | None:
        """Tell why ``substitute`` cannot stand for ``original``; None if it can."""
        if not isinstance(substitute, (jax.Array, np.ndarray, np.generic)):
            return f"returned {type(substitute).__name__}, not a tensor"
        if original is None:
            return None
        expected, given = jax.typeof(original), jax.typeof(substitute)
        fits = (expected.dtype, expected.shape) == (given.dtype, given.shape)
        return None if fits else f"returned {given.str_short()} for {expected.str_short()}"

    def describe(self, tensor: Any) -> TensorInfo:
        """Tell shape, dtype and size of a tensor, and the device of a value that is on one."""
        tensor = primal(tensor)
        known = jax.typeof(tensor)
        shape = tuple([size if isinstance(size, int) else None for size in known.shape])
        nbytes = None if None in shape else known.size * known.dtype.itemsize
        on = getattr(tensor, "device", None) if is_known(tensor) else None
        device = f"{on.platform}:{on.id}" if isinstance(on, jax.Device) else None
        return TensorInfo(shape, known.dtype.name, nbytes, device)

    def parameter(self, tensor: Any) -> Parameter | None:
        """Tell the parameter, of the model that runs, that a tensor is, or a cast or view of."""
        found = model.thread.run.parameter(tensor)
        return found and Parameter(found[0], self.describe(found[1]), trainable=None)

    def forward_types(self, types: frozenset[str]) -> frozenset[str]:
        """Return the operators whose backward, or which themselves, have one of these types."""
        return frozenset(type.removesuffix("_vjp") for type in types)


driver = JaxDriver()
