"""The driver: has the framework obey the tools."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
from amanda import Driver
from amanda.driving import (
    ActiveEngine,
    Call,
    Operators,
    Parameter,
    Stored,
    TensorInfo,
)

from numpy_backend import framework
from numpy_backend.framework import Grads, Kernel, Module, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amanda import Operator
    from amanda.driving import Engine, Execution

    from numpy_backend.framework import Run

    # The modules and the run that a thread was in, and whether in a routine of this backend.
    Suspended = tuple[tuple[Module, ...], Run | None, bool]


class KernelCall(Call):
    """A call of a kernel."""

    def run_watched(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        outputs = self.run(inputs)
        node = outputs[0].node
        if node is None:  # nothing needs a gradient
            return outputs
        backward_operator = self.engine.driver.operators.backward(self.operator, "_backward")
        detached, run = list(map(framework.detached, outputs)), node.backward

        def watched(grads: Grads) -> Grads:  # maybe long after the forward
            return self.backward(backward_operator, grads, detached, run)

        return framework.on_tape(list(map(framework.detached, outputs)), node.inputs, watched)

    def straight_through(self, original: Tensor, substitute: Tensor) -> Tensor:
        return framework.execute(_SUBSTITUTE, [original, substitute], {})[0]


_SUBSTITUTE = Kernel(
    "substitute",
    ("original", "substitute"),
    forward=lambda original, substitute: (substitute,),
    backward=lambda grads, inputs, outputs: (grads[0], None),
)


class StoredArray(Stored):
    """The array that a model keeps of a parameter; a model is a list of these."""

    def __init__(self, parameter: framework.Parameter) -> None:
        self._source = weakref.ref(parameter.source)

    def source(self, model: Sequence[framework.Array]) -> framework.Array | None:
        source = self._source()
        return source if any(held is source for held in model) else None

    def read(self, model: Sequence[framework.Array]) -> Tensor:
        return Tensor(self.source(model).copy())

    def write(self, model: Sequence[framework.Array], tensor: Tensor) -> Callable[[], object]:
        held = self.source(model)
        before = held.copy()
        held[...] = tensor.array
        return lambda: np.copyto(held, before)


class NumpyDriver(Driver):
    """Runs the framework's kernels the way an engine says."""

    backend = "numpy"
    vocabulary = "numpy"
    xp = framework
    call = KernelCall

    def __init__(self) -> None:
        self.operators = Operators(self.backend, [framework.__name__, __name__])
        self.active = ActiveEngine(self._changed)

    def activate(self, engine: Engine | None) -> None:
        self.active.put(engine)

    def _changed(self, engine: Engine | None) -> None:
        framework.thread.interceptor = engine and functools.partial(self._intercept, engine)

    def suspend(self) -> Suspended:
        suspended = framework.thread.modules, framework.thread.run, self.active.suspend()
        framework.thread.modules, framework.thread.run = (), None
        return suspended

    def resume(self, suspended: Suspended, engine: Engine | None) -> None:
        framework.thread.modules, framework.thread.run, paused = suspended
        self.active.put(engine, paused)

    def value(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        return tensor.array

    def variable(self, initial: Any, execution: Execution) -> Variable:
        return Variable(np.array(initial))

    def incompatible_reason(self, original: Tensor | None, substitute: Any) -> str | None:
        if not isinstance(substitute, Tensor):
            return f"returned {type(substitute).__name__}, not a tensor"
        if original is None:
            return None
        expected, given = original.array, substitute.array
        if (expected.dtype, expected.shape) != (given.dtype, given.shape):
            return (
                f"returned {given.dtype} of shape {given.shape} "
                f"for {expected.dtype} of shape {expected.shape}"
            )
        return None

    def describe(self, tensor: Tensor) -> TensorInfo:
        array = tensor.array
        return TensorInfo(
            array.shape,
            array.dtype.name,
            array.nbytes,
            device="cpu",
            requires_grad=tensor.needs_gradient,
        )

    def is_parameter_itself(self, found: Tensor) -> bool:
        return isinstance(found, framework.Parameter)

    def parameter_info(self, found: framework.Parameter, tensor: Tensor) -> Parameter:
        return Parameter(found.source, self.describe(found), trainable=True)

    def stored(self, tensor: framework.Parameter) -> StoredArray:
        return StoredArray(tensor)

    def _intercept(
        self, engine: Engine, kernel: Kernel, inputs: Sequence[Tensor], attrs: Mapping[str, Any]
    ) -> Sequence[Tensor]:
        if not engine.wants(kernel.name):
            return framework.execute(kernel, inputs, attrs)
        operator = self._identify(kernel.name)
        plan = engine.plan(operator)
        if plan is not None and plan.is_noop:
            return framework.execute(kernel, inputs, attrs)
        run = functools.partial(framework.execute, kernel, attrs=attrs)
        return self.call(engine, operator, inputs, kernel.inputs, attrs, run).execute()

    def _identify(self, type: str) -> Operator:
        """The operator of a type that is being called."""
        modules = framework.thread.modules
        return self.operators.at(
            part=modules[-1] if modules else None,
            scope=".".join(module.name for module in modules if module.name),
            type=type,
            run=framework.thread.run,
        )


class Variable(Tensor):
    """State of a tool: a tensor to compute with."""

    __slots__ = ()

    def assign(self, value: Any) -> None:
        """Give it another value of the same shape and dtype."""
        self.array = np.broadcast_to(np.asarray(value, self.array.dtype), self.array.shape)


driver = NumpyDriver()
