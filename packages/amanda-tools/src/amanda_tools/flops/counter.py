"""FLOPs are counted at each execution of an operator, from what the driver tells of tensors."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import InitVar, dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from amanda_tools.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda import Driver, Parameter, TensorInfo

    from amanda_tools.flops.table import Attrs, Formula, Table
    from amanda_tools.place import Model

    # None stands for a shape that cannot be told, and for a tensor that there is not.
    Shapes = tuple[Any, ...]
    Describe = Callable[[Any], TensorInfo]
    Described = list[TensorInfo | None]

# Shapes at which one operator ran are kept until its gradient comes, the latest of them.
_KEPT = 1024


@dataclass
class OperatorFlops:
    """This is what one operator did in all its executions.

    Attributes:
        id, type, scope: the operator.
        purpose: what it is there for: ``model``, ``optimizer``, ``data`` or ``initialization``.
        calls: how many executions there were.
        forward: FLOPs of the executions.
        backward: FLOPs of the gradients that flowed.
        macs: multiply-adds of the executions, where they are contractions.
        params: elements of the parameters that it is given.
        bytes: sizes of inputs and outputs in all executions; views move nothing.
        uncounted: executions whose FLOPs no formula tells.
        uncounted_backward: gradients that no formula tells, of executions that are counted.
        uncounted_tangents: executions in forward mode (``jvp``) that are counted without tangents.
        place: the operator, as columns have it; no field, and not in files.
    """

    id: str
    type: str
    scope: str
    purpose: str = "model"
    calls: int = 0
    forward: int = 0
    backward: int = 0
    macs: int = 0
    params: int = 0
    bytes: int = 0
    uncounted: int = 0
    uncounted_backward: int = 0
    uncounted_tangents: int = 0
    model: InitVar[Model | None] = None

    def __post_init__(self, model: Model | None) -> None:
        self.place = Place(self.id, self.type, self.scope, self.purpose, model)


class Counted:
    """This is what one execution counts: the difference of its operator's sums after and before it.

    Attributes:
        forward: FLOPs of the execution.
        macs: multiply-adds of it.
    """

    def __init__(self, forward: int, macs: int) -> None:
        self.forward = self.macs = 0
        self._ahead = forward, macs

    def end(self, row: OperatorFlops) -> None:
        """Take the operator's sums after the execution."""
        forward, macs = self._ahead
        self.forward, self.macs = row.forward - forward, row.macs - macs


class Work:
    """This is the work that executions do whose tensors are described alike.

    Attributes:
        given, gave: the descriptions of the tensors.
        inputs, outputs: their shapes.
        executions: how many executions one stands for.
        bytes: the size of all tensors.
        linked: whether the framework will compute a gradient through it, as far as it shows.
    """

    def __init__(self, given: Described, gave: Described) -> None:
        self.given = given
        self.gave = gave
        self.inputs = shapes_of(given)
        self.outputs = shapes_of(gave)
        mapped = {level: size for info in given if info is not None for level, size in info.mapped}
        self.executions = prod(mapped.values())
        there = [info for info in (*given, *gave) if info is not None]
        self.bytes = sum(info.nbytes or 0 for info in there)
        self.linked = any(info is not None and info.requires_grad for info in gave)


class Works:
    """This has the work of one operator's executions, most of which are like the one before.

    What begins is kept until it ends. A graph may run what comes before an operator and what comes
    after it in different threads.
    """

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._begun: dict[int, Described] = {}
        self._latest = Work([], [])

    def begin(self, inputs: Sequence[Any]) -> None:
        """Take note of an execution that begins in this thread."""
        self._begun[threading.get_ident()] = described(self._describe, inputs)

    def end(self, outputs: Sequence[Any]) -> Work:
        """Return the work of the execution that ends: if there are several, that of this thread."""
        given = self._begun.pop(threading.get_ident(), None)
        if given is None:
            given = self._begun.popitem()[1]
        gave = described(self._describe, outputs)
        work = self._latest
        if given != work.given or gave != work.gave:
            work = self._latest = Work(given, gave)
        return work


class Thread(threading.local):
    """This tells what is running in a thread.

    Attributes:
        row: the operator that the program called, None between two of them.
        inside: whether something that ran inside of it was counted.
        linked: whether that has a gradient of its own.
    """

    row: OperatorFlops | None = None
    inside = False
    linked = False


class Counter:
    """A counter counts one operator's FLOPs by its formula.

    Its routines are for an operator inside of another one; for one that the program calls, a
    :class:`Call` has it count.
    """

    def __init__(
        self,
        row: OperatorFlops,
        formula: Formula,
        attrs: Attrs,
        driver: Driver,
        thread: Thread,
        lock: threading.Lock,
    ) -> None:
        self._row = row
        self._formula = formula
        self._attrs = attrs
        self._describe = driver.describe
        self._in_forward_mode = driver.in_forward_mode
        self._thread = thread
        self._lock = lock
        self._works = Works(driver.describe)
        self._latest: tuple[Work | None, int | None] = None, None
        self._counts: OrderedDict[tuple[Shapes, int, Shapes], int] = OrderedDict()
        self._grad_outputs: Shapes = ()

    def begin(self, *inputs: Any) -> None:
        """Take note of an execution that begins inside of another operator."""
        self._works.begin(inputs)

    def end(self, *outputs: Any) -> None:
        """Count an execution that has ended for the operator that it ran in."""
        work = self._works.end(outputs)
        thread = self._thread
        if thread.row is not None:
            self._row = thread.row
        thread.inside = True
        thread.linked |= work.linked
        with self._lock:
            self.count(work)

    def count(self, work: Work) -> None:
        """Count an execution, with the lock held."""
        latest, flops = self._latest
        if work is not latest:
            flops = self._flops(work)
            self._latest = work, flops
        if flops is None:
            self._row.uncounted += 1
            return
        self._row.forward += flops
        self._row.uncounted_tangents += self._in_forward_mode()
        if self._formula.operands:
            self._row.macs += flops // 2

    def _flops(self, work: Work) -> int | None:
        """Count the FLOPs of an execution, the latest one now; None if its shapes do not tell."""
        execution = work.inputs, work.executions, work.outputs
        if execution in self._counts:
            self._counts.move_to_end(execution)
        elif _are_known(work.inputs) and _are_known(work.outputs):
            flops = self._formula.forward(work.inputs, work.outputs, self._attrs)
            self._counts[execution] = flops * work.executions
            if len(self._counts) > _KEPT:
                self._counts.popitem(last=False)
        return self._counts.get(execution)

    def on_grad_outputs(self, *grads: Any) -> None:
        """Take the gradients of the outputs, which come ahead of those of the inputs."""
        self._grad_outputs = shapes_of(described(self._describe, grads))

    def on_grad_inputs(self, *grads: Any) -> None:
        """Count the gradient of an execution: of the latest one that had these shapes."""
        grad_inputs = shapes_of(described(self._describe, grads))
        with self._lock:
            flops = self._backward(grad_inputs, [grad is not None for grad in grads])
            if flops is None:
                self._row.uncounted_backward += 1
            else:
                self._row.backward += flops

    def _backward(self, grad_inputs: Shapes, flows: Sequence[bool]) -> int | None:
        """Count the FLOPs of the gradients that flow; None if nobody can tell."""
        for inputs, executions, outputs in reversed(self._counts):
            if _fit(grad_inputs, inputs) and _fit(self._grad_outputs, outputs):
                flops = self._formula.backward(inputs, outputs, self._attrs, flows)
                return None if flops is None else flops * executions
        return None


class Call:
    """A call counts an operator that the program calls: its executions, its bytes and its FLOPs.

    ``counter`` counts its FLOPs; None if it has none, or only those of what runs inside of it.
    ``describe`` is the driver's. ``ended`` is called after each execution, with the lock held.
    """

    def __init__(
        self,
        row: OperatorFlops,
        counter: Counter | None,
        table: Table,
        describe: Describe,
        thread: Thread,
        lock: threading.Lock,
        ended: Callable[[], None],
    ) -> None:
        self.counter = counter
        self._ended = ended
        self._row = row
        self._is_view = row.type in table.views
        self._is_free = self._is_view or row.type in table.copies
        self._is_whole = counter is not None or row.type in table.closed
        self._thread = thread
        self._lock = lock
        self._works = Works(describe)

    def begin(self, *inputs: Any) -> None:
        """Take note of an execution that begins."""
        if not self._is_whole:
            thread = self._thread
            thread.row = self._row
            thread.inside = thread.linked = False
        self._works.begin(inputs)

    def end(self, *outputs: Any) -> None:
        """Count the execution that has ended."""
        work, row = self._works.end(outputs), self._row
        with self._lock:
            row.calls += 1
            if not self._is_view:
                row.bytes += work.bytes
            if self.counter is not None:
                self.counter.count(work)
            elif not self._is_whole and self._thread.inside:
                # Gradients are counted at the operators inside. Where these have none, but this
                # one has, as in a custom autograd function, nobody counts it.
                if not self._thread.linked and work.linked:
                    row.uncounted_backward += 1
            elif not self._is_free:
                row.uncounted += 1
            self._ended()
        if not self._is_whole:
            self._thread.row = None


def elements_of(parameter: Parameter) -> int:
    """Count the elements of a parameter, as far as their number is known."""
    return prod(size or 0 for size in parameter.info.shape or (0,))


def described(describe: Describe, tensors: Sequence[Any]) -> Described:
    """Describe tensors; None for those that a backend cannot show, as lists, or that are absent."""
    return [None if tensor is None else describe(tensor) for tensor in tensors]


def shapes_of(given: Described) -> Shapes:
    """Return shapes; None for one that does not tell the work, since elements are left out."""
    return tuple([info.shape if info is not None and info.is_dense else None for info in given])


def _are_known(shapes: Shapes) -> bool:
    return all(
        shape is not None and all(isinstance(size, int) for size in shape) for shape in shapes
    )


def _fit(grads: Shapes, shapes: Shapes) -> bool:
    """Tell whether the gradients that flow are those of tensors of these shapes."""
    return len(grads) == len(shapes) and all(
        grad is None or grad == shape for grad, shape in zip(grads, shapes, strict=True)
    )
