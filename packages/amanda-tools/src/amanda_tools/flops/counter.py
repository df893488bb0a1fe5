"""Counting at each execution of an operator, from what the driver tells of tensors there."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import InitVar, dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from amanda_tools.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda import TensorInfo

    from amanda_tools.flops.table import Attrs, Formula, Table
    from amanda_tools.place import Model

    # None stands for a shape that cannot be told, and for a tensor that there is not.
    Shapes = tuple[Any, ...]
    Describe = Callable[[Any], TensorInfo]

# Shapes at which one operator ran are kept until its gradient comes, the latest of them.
_KEPT = 1024


@dataclass
class OperatorFlops:
    """What one operator did in all its executions.

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
    model: InitVar[Model | None] = None

    def __post_init__(self, model: Model | None) -> None:
        self.place = Place(self.id, self.type, self.scope, self.purpose, model)


class Counted:
    """What one execution counts, as what is more behind it than was ahead of it.

    Attributes:
        forward: FLOPs of the execution.
        macs: multiply-adds of it.
    """

    def __init__(self, forward: int, macs: int) -> None:
        self.forward = self.macs = 0
        self._ahead = forward, macs

    def end(self, row: OperatorFlops) -> None:
        """It has ended."""
        forward, macs = self._ahead
        self.forward, self.macs = row.forward - forward, row.macs - macs


class Inputs(NamedTuple):
    """What an execution is given.

    Attributes:
        shapes: of the tensors.
        executions: how many executions this one stands for.
        bytes: the size of the tensors.
    """

    shapes: Shapes
    executions: int
    bytes: int


class Begun:
    """The inputs of executions that have begun, until they end.

    A graph may run what comes before an operator and what comes after it in different threads.
    """

    def __init__(self) -> None:
        self._inputs: dict[int, Inputs] = {}

    def put(self, inputs: Inputs) -> None:
        """An execution has begun in this thread."""
        self._inputs[threading.get_ident()] = inputs

    def take(self) -> Inputs:
        """The one that ends now: if there are several, that of this thread."""
        inputs = self._inputs.pop(threading.get_ident(), None)
        return self._inputs.popitem()[1] if inputs is None else inputs


class Thread(threading.local):
    """What is running in a thread.

    Attributes:
        row: the operator that the program called, None between two of them.
        inside: whether something that ran inside of it was counted.
        linked: whether that has a gradient of its own.
    """

    row: OperatorFlops | None = None
    inside = False
    linked = False


class Counter:
    """Counts one operator by its formula.

    Its routines are for an operator inside of another one; for one that the program calls, a
    :class:`Call` has it count. ``describe`` is the driver's.
    """

    def __init__(
        self,
        row: OperatorFlops,
        formula: Formula,
        attrs: Attrs,
        describe: Describe,
        thread: Thread,
        lock: threading.Lock,
    ) -> None:
        self._row = row
        self._formula = formula
        self._attrs = attrs
        self._describe = describe
        self._thread = thread
        self._lock = lock
        self._begun = Begun()
        self._counts: OrderedDict[tuple[Inputs, Shapes], int] = OrderedDict()
        self._grad_outputs: Shapes = ()

    def begin(self, *inputs: Any) -> None:
        """Before an execution inside of another operator."""
        self._begun.put(seen(self._describe, inputs))

    def end(self, *outputs: Any) -> None:
        """After it: it counts for the operator that it ran in."""
        given = described(self._describe, outputs)
        thread = self._thread
        if thread.row is not None:
            self._row = thread.row
        thread.inside = True
        thread.linked |= have_gradients(given)
        with self._lock:
            self.count(self._begun.take(), shapes_of(given))

    def count(self, inputs: Inputs, outputs: Shapes) -> None:
        """Count an execution, with the lock held."""
        execution = inputs, outputs
        if execution in self._counts:
            self._counts.move_to_end(execution)
        elif _are_known(inputs.shapes) and _are_known(outputs):
            flops = self._formula.forward(inputs.shapes, outputs, self._attrs)
            self._counts[execution] = flops * inputs.executions
            if len(self._counts) > _KEPT:
                self._counts.popitem(last=False)
        else:
            self._row.uncounted += 1
            return
        flops = self._counts[execution]
        self._row.forward += flops
        if self._formula.operands:
            self._row.macs += flops // 2

    def on_grad_outputs(self, *grads: Any) -> None:
        """The gradients of the outputs, which come ahead of those of the inputs."""
        self._grad_outputs = shapes_of(described(self._describe, grads))

    def on_grad_inputs(self, *grads: Any) -> None:
        """Count the gradient of an execution: of the latest one that had these shapes."""
        grad_inputs = shapes_of(described(self._describe, grads))
        flows = [grad is not None for grad in grads]
        with self._lock:
            flops = None
            for inputs, outputs in reversed(self._counts):
                if _fit(grad_inputs, inputs.shapes) and _fit(self._grad_outputs, outputs):
                    flops = self._formula.backward(inputs.shapes, outputs, self._attrs, flows)
                    break
            if flops is None:
                self._row.uncounted_backward += 1
            else:
                self._row.backward += flops * inputs.executions


class Call:
    """Counts an operator that the program calls: its executions, its bytes and its FLOPs.

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
        self._describe = describe
        self._is_view = row.type in table.views
        self._is_free = self._is_view or row.type in table.copies
        self._thread = thread
        self._lock = lock
        self._begun = Begun()

    def begin(self, *inputs: Any) -> None:
        """Before an execution."""
        thread = self._thread
        thread.row = self._row
        thread.inside = thread.linked = False
        self._begun.put(seen(self._describe, inputs))

    def end(self, *outputs: Any) -> None:
        """After it."""
        thread, row = self._thread, self._row
        thread.row = None
        inputs = self._begun.take()
        given = described(self._describe, outputs)
        with self._lock:
            row.calls += 1
            if not self._is_view:
                row.bytes += inputs.bytes + nbytes_of(given)
            if self.counter is not None:
                self.counter.count(inputs, shapes_of(given))
            elif thread.inside:
                # The gradient of what is made of others is theirs, unless they run in secret, as
                # in a custom autograd function.
                if not thread.linked and have_gradients(given):
                    row.uncounted_backward += 1
            elif not self._is_free:
                row.uncounted += 1
            self._ended()


def seen(describe: Describe, inputs: Sequence[Any]) -> Inputs:
    """What counting needs of the inputs, which may be gone by then."""
    given = described(describe, inputs)
    mapped = {level: size for info in given if info is not None for level, size in info.mapped}
    return Inputs(shapes_of(given), prod(mapped.values()), nbytes_of(given))


def described(describe: Describe, tensors: Sequence[Any]) -> list[TensorInfo | None]:
    """What is told of tensors; None for what a backend cannot show, as a list, or there is not."""
    return [None if tensor is None else describe(tensor) for tensor in tensors]


def shapes_of(given: Sequence[TensorInfo | None]) -> Shapes:
    """Their shapes; None for one that does not tell the work, since elements are left out."""
    return tuple([info.shape if info is not None and info.is_dense else None for info in given])


def nbytes_of(given: Sequence[TensorInfo | None]) -> int:
    """Their size, all together, as far as it is known."""
    return sum([info.nbytes or 0 for info in given if info is not None])


def have_gradients(given: Sequence[TensorInfo | None]) -> bool:
    """Whether the framework will compute a gradient through any of them, as far as it shows."""
    return any(info is not None and info.requires_grad for info in given)


def _are_known(shapes: Shapes) -> bool:
    return all(
        shape is not None and all(isinstance(size, int) for size in shape) for shape in shapes
    )


def _fit(grads: Shapes, shapes: Shapes) -> bool:
    """Whether the gradients that flow are those of tensors of these shapes."""
    return len(grads) == len(shapes) and all(
        grad is None or grad == shape for grad, shape in zip(grads, shapes, strict=True)
    )
