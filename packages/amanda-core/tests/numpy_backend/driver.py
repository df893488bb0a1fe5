"""The driver: has the framework obey the tools."""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from amanda import Driver, Operator
from amanda.driving import Execution

from numpy_backend import framework
from numpy_backend.framework import Grads, Kernel, Parameter, Tensor
from numpy_backend.identity import Identities

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from amanda.driving import Action, Engine

    from numpy_backend.framework import Backward, Interceptor, Module


class _Thread(threading.local):
    """What is to see the kernels that a thread calls, except in the code of tools."""

    interceptor: Interceptor | None = None


_thread = _Thread()


class NumpyDriver(Driver):
    """Runs the framework's kernels the way an engine says."""

    backend = "numpy"
    vocabulary = "numpy"
    xp = framework

    def __init__(self) -> None:
        self._identities = Identities()

    def activate(self, engine: Engine | None) -> None:
        self._put_in_force(engine)
        framework.thread.interceptor = _thread.interceptor

    def suspend(self) -> tuple[Module, ...]:
        modules, framework.thread.modules = framework.thread.modules, ()
        return modules

    def resume(self, suspended: tuple[Module, ...], engine: Engine | None) -> None:
        framework.thread.modules = suspended
        self._put_in_force(engine)
        framework.thread.interceptor = None  # until _not_intercepted() is left

    def _put_in_force(self, engine: Engine | None) -> None:
        _thread.interceptor = engine and functools.partial(self._intercept, engine)

    def value(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        return tensor.array

    def variable(self, initial: Any, execution: Execution) -> Variable:
        return Variable(np.array(initial))

    def refusal(self, original: Tensor | None, substitute: Any) -> str | None:
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

    def is_parameter(self, tensor: Tensor) -> bool:
        return isinstance(tensor, Parameter)

    def _intercept(
        self, engine: Engine, kernel: Kernel, inputs: Sequence[Tensor], attrs: Mapping[str, Any]
    ) -> Sequence[Tensor]:
        if not engine.wants(kernel.name):
            return framework.execute(kernel, inputs, attrs)
        operator = self._identities.forward(kernel.name)
        plan = engine.plans.get(operator.serial)
        if plan is not None and plan.idle:
            return framework.execute(kernel, inputs, attrs)
        with _not_intercepted():
            return self._execute(engine, Call(operator, kernel, inputs, attrs))

    def _execute(self, engine: Engine, call: Call) -> Sequence[Tensor]:
        operator = call.operator
        plan = engine.plans.get(operator.serial) or engine.analyze(call.shown())
        if plan.pending:
            # It runs once for the tools to see its outputs, and then as they decide.
            plan = engine.complete(plan, call.shown(outputs=call.run(call.inputs)))

        given = _run_routines(engine, plan.before, call.inputs, operator)
        outputs = call.run(given)
        node = outputs[0].node
        if node is not None and (plan.backward or plan.gradient):
            backward_operator = self._identities.backward(operator)
            shown = functools.partial(call.shown, outputs=[Tensor(t.array) for t in outputs])
            node.backward = WayBack(engine, operator, backward_operator, shown, node.backward)
        if plan.replace is not None:  # the node of the original stays: S3
            replaced = engine.replace(plan.replace, given, outputs, operator)
            outputs = _linked(plan.replace, outputs, replaced)
        return _run_routines(engine, plan.after, outputs, operator)


class Call(NamedTuple):
    """One execution of an operator."""

    operator: Operator
    kernel: Kernel
    inputs: Sequence[Tensor]
    attrs: Mapping[str, Any]

    def run(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Run the operator on these inputs."""
        return framework.execute(self.kernel, inputs, self.attrs)

    def shown(self, **known: Any) -> Execution:
        """What the analysis routines see of it."""
        return Execution(self.operator, self.inputs, self.kernel.inputs, self.attrs, **known)


class WayBack(NamedTuple):
    """What runs in place of the backward of a node on the tape, maybe long after its forward."""

    engine: Engine
    operator: Operator
    backward_operator: Operator
    shown: Any
    run: Backward

    def __call__(self, grads: Grads) -> Grads:
        if framework.thread.interceptor is None:  # no tools in force, or inside a routine
            return self.run(grads)
        engine = self.engine
        with _not_intercepted():
            # The gradient of the operator as a whole lies around its backward operators.
            plan = engine.gradient_plan(
                self.shown(grad_outputs=grads, grad_inputs=lambda: self.run(grads))
            )
            grads = engine.run(engine.live(plan.on_outputs), grads, self.operator)
            grads = self._run_backward_operator(grads)
            return engine.run(engine.live(plan.on_inputs), grads, self.operator)

    def _run_backward_operator(self, grads: Grads) -> Grads:
        engine, operator = self.engine, self.backward_operator
        shown = functools.partial(self.shown, backward_operator=operator, grad_outputs=grads)
        plan = engine.backward_plan(shown())
        if plan.pending:
            plan = engine.complete_backward(plan, shown(grad_inputs=self.run(grads)))

        grads = engine.run(engine.live(plan.before), grads, operator)
        outgoing = self.run(grads)
        if plan.replace is not None and engine.live((plan.replace,)):
            outgoing = engine.replace(plan.replace, grads, outgoing, operator)
        return engine.run(engine.live(plan.after), outgoing, operator)


@contextlib.contextmanager
def _not_intercepted() -> Iterator[None]:
    """Have the code of tools, and what is run on their behalf, seen by nobody."""
    framework.thread.interceptor = None
    try:
        yield
    finally:
        framework.thread.interceptor = _thread.interceptor


def _run_routines(
    engine: Engine, actions: Sequence[Action], tensors: Sequence[Tensor], operator: Operator
) -> Sequence[Tensor]:
    """Run routines before an operator or after it, one by one to link what each returns."""
    for action in actions:
        tensors = _linked(action, tensors, engine.run([action], tensors, operator))
    return tensors


def _linked(
    action: Action, originals: Sequence[Tensor], substitutes: Sequence[Tensor]
) -> Sequence[Tensor]:
    """The substitutes, with their gradients flowing as the action says."""
    if action.differentiable:
        return substitutes
    return [
        original if substitute is original else _straight_through(original, substitute)
        for original, substitute in zip(originals, substitutes, strict=True)
    ]


_SUBSTITUTE = Kernel(
    "substitute",
    ("original", "substitute"),
    forward=lambda original, substitute: (substitute,),
    backward=lambda grads, inputs, outputs: (grads[0], None),
)


def _straight_through(original: Tensor, substitute: Tensor) -> Tensor:
    """The substitute, with its gradient passing to the original: S3."""
    return framework.execute(_SUBSTITUTE, [original, substitute], {})[0]


class Variable(Tensor):
    """State of a tool: a tensor to compute with."""

    __slots__ = ()

    def assign(self, value: Any) -> None:
        """Give it another value of the same shape and dtype."""
        self.array = np.broadcast_to(np.asarray(value, self.array.dtype), self.array.shape)


driver = NumpyDriver()
