"""The driver: has the framework obey the tools. Writing a driver is explained along this file."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
from amanda import Driver, Operator
from amanda.context import Execution

from numpy_backend import framework
from numpy_backend.framework import Grads, Kernel, Module, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from amanda.action import Action
    from amanda.engine import Engine

# Identity: the place in the model that an operator is


class Identities:
    """Which operator a call of a kernel is an execution of.

    The address of an operator is the module it runs in, the place in the code that calls it, and,
    where that is passed several times in one run of the model, its turn.
    """

    def __init__(self) -> None:
        self._operators: weakref.WeakKeyDictionary[Module, dict[object, Operator]]
        self._operators = weakref.WeakKeyDictionary()  # so they live as long as their module
        self._by_id: weakref.WeakValueDictionary[str, Operator] = weakref.WeakValueDictionary()
        self._outside = Module()
        self._turns = _Turns()
        self._lock = threading.Lock()

    def find(self, kernel: Kernel) -> Operator:
        """The operator for a kernel that is being called."""
        modules = framework.thread.modules or (self._outside,)
        site = (kernel.name, *_caller())
        turn = self._turns.next((id(modules[-1]), *site))
        with self._lock:
            operators = self._operators.setdefault(modules[-1], {})
            address = (*site, turn)
            if address not in operators:
                scope = ".".join(module.name for module in modules if module.name)
                operators[address] = self.new(scope, kernel.name)
            return operators[address]

    def new(self, scope: str, type: str) -> Operator:
        """An operator with an id that no other living operator has."""
        first = id = f"{scope}/{type}" if scope else type
        count = 1
        while id in self._by_id:
            count += 1
            id = f"{first}#{count}"
        operator = Operator(id=id, type=type, name=id, scope=scope, backend="numpy")
        self._by_id[id] = operator
        return operator


class _Turns(threading.local):
    """How often each place was passed in the current run of the model."""

    def __init__(self) -> None:
        self._run = 0
        self._passed: dict[object, int] = {}

    def next(self, site: object) -> int:
        if self._run != framework.thread.run or not framework.thread.modules:
            self._run = framework.thread.run
            self._passed.clear()
        turn = self._passed.get(site, 0)
        self._passed[site] = turn + 1
        return turn


def _caller() -> tuple[object, int]:
    """The instruction that called into the framework: its code and offset."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename in (__file__, framework.__file__) and frame.f_back:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


# Execution: carrying out plans


class Variable(Tensor):
    """State of a tool."""

    __slots__ = ()

    def assign(self, value: Any) -> None:
        """Give it another value of the same shape."""
        self.array = np.broadcast_to(np.asarray(value, self.array.dtype), self.array.shape)


class NumpyDriver(Driver):
    """Runs kernels under an engine, and wraps the tape's nodes for the way back."""

    backend = "numpy"
    vocabulary = "numpy"
    xp = framework

    def __init__(self) -> None:
        self._identities = Identities()
        self._backward_operators: weakref.WeakKeyDictionary[Operator, Operator]
        self._backward_operators = weakref.WeakKeyDictionary()
        self._active = threading.local()

    def activate(self, engine: Engine | None) -> None:
        self._active.engine = engine
        framework.thread.interceptor = engine and functools.partial(self._intercept, engine)

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

    # Forward

    def _intercept(
        self, engine: Engine, kernel: Kernel, inputs: Sequence[Tensor], attrs: Mapping[str, Any]
    ) -> Sequence[Tensor]:
        if not engine.wants(kernel.name):
            return framework.execute(kernel, inputs, attrs)
        operator = self._identities.find(kernel)
        plan = engine.plans.get(operator.serial)
        if plan is not None and plan.idle:
            return framework.execute(kernel, inputs, attrs)
        with _not_intercepted():
            return self._execute(engine, operator, kernel, inputs, attrs)

    def _execute(
        self,
        engine: Engine,
        operator: Operator,
        kernel: Kernel,
        inputs: Sequence[Tensor],
        attrs: Mapping[str, Any],
    ) -> Sequence[Tensor]:
        shown = functools.partial(Execution, operator, inputs, kernel.inputs, attrs)
        plan = engine.plans.get(operator.serial) or engine.analyze(shown())
        if plan.pending:
            # the operator is run for the tools to see its outputs, then again under the plan
            plan = engine.complete(plan, shown(framework.execute(kernel, inputs, attrs)))

        given = _run_routines(engine, plan.before, inputs, operator)
        outputs = framework.execute(kernel, given, attrs)
        node = outputs[0].node
        if node is not None and (plan.backward or plan.gradient):
            show = functools.partial(shown, outputs=[Tensor(output.array) for output in outputs])
            node.backward = functools.partial(self._backward, engine, operator, show, node.backward)
        if plan.replace is not None:
            replaced = engine.replace(plan.replace, given, outputs, operator)
            outputs = _linked(plan.replace, outputs, replaced)
        return _run_routines(engine, plan.after, outputs, operator)

    # The way back

    def _backward(
        self,
        engine: Engine,
        operator: Operator,
        show: Callable[..., Execution],
        run: Callable[[Grads], Grads],
        grads: Grads,
    ) -> Grads:
        """What a node's backward does in place of ``run``."""
        if getattr(self._active, "engine", None) is None or not engine.open:
            return run(grads)
        with _not_intercepted():
            whole = engine.gradient_plan(show(grad_outputs=grads, grad_inputs=lambda: run(grads)))
            grads = engine.run(engine.live(whole.on_outputs), grads, operator)
            grads = self._backward_operator(engine, operator, show, run, grads)
            return engine.run(engine.live(whole.on_inputs), grads, operator)

    def _backward_operator(
        self,
        engine: Engine,
        operator: Operator,
        show: Callable[..., Execution],
        run: Callable[[Grads], Grads],
        grads: Grads,
    ) -> Grads:
        if operator not in self._backward_operators:
            self._backward_operators[operator] = self._identities.new(
                operator.scope, f"{operator.type}_backward"
            )
        backward_operator = self._backward_operators[operator]
        shown = functools.partial(show, backward_operator=backward_operator, grad_outputs=grads)
        plan = engine.backward_plan(shown())
        if plan.pending:
            plan = engine.complete_backward(plan, shown(grad_inputs=run(grads)))

        grads = engine.run(engine.live(plan.before), grads, backward_operator)
        outgoing = run(grads)
        if plan.replace is not None and engine.live((plan.replace,)):
            outgoing = engine.replace(plan.replace, grads, outgoing, backward_operator)
        return engine.run(engine.live(plan.after), outgoing, backward_operator)


@contextlib.contextmanager
def _not_intercepted() -> Iterator[None]:
    """Have tools' code, and what we run on their behalf, seen by nobody."""
    interceptor = framework.thread.interceptor
    framework.thread.interceptor = None
    try:
        yield
    finally:
        framework.thread.interceptor = interceptor


# Gradients: substitutes take the place of tensors, whose gradients they pass on

_SUBSTITUTE = Kernel(
    "substitute",
    ("original", "substitute"),
    lambda original, substitute: (substitute,),
    lambda grads, inputs, outputs: (grads[0], None),
)


def _straight_through(original: Tensor, substitute: Tensor) -> Tensor:
    return framework.execute(_SUBSTITUTE, [original, substitute], {})[0]


def _linked(
    action: Action, originals: Sequence[Tensor], substitutes: Sequence[Tensor]
) -> Sequence[Tensor]:
    """The substitutes, from which gradients flow as the action says."""
    if action.differentiable:
        return substitutes
    return [
        original if substitute is original else _straight_through(original, substitute)
        for original, substitute in zip(originals, substitutes, strict=True)
    ]


def _run_routines(
    engine: Engine, actions: Sequence[Action], tensors: Sequence[Tensor], operator: Operator
) -> Sequence[Tensor]:
    """Run routines in front of an operator or behind it."""
    for action in actions:
        tensors = _linked(action, tensors, engine.run([action], tensors, operator))
    return tensors


driver = NumpyDriver()
