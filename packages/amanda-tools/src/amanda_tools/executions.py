"""Every execution, measured once for all tools that show time."""

from __future__ import annotations

import threading
from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import amanda

from amanda_tools.accelerator import accelerator_of
from amanda_tools.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda_tools.accelerator import Accelerator

Direction = Literal["forward", "backward"]

# Operators inside each other. Those that failed never end, and make room at last.
_DEEPEST = 256


class Tensors(NamedTuple):
    """Shapes and dtypes of tensors; None for a gradient that does not flow.

    A size is None where it is not one number, as that of the ragged dimension of a nested tensor.
    """

    shapes: list[list[int | None] | None]
    dtypes: list[str | None]


class Execution(NamedTuple):
    """One execution of a forward or backward operator; times are in nanoseconds.

    Attributes:
        place: the operator that ran.
        forward: the forward operator that it belongs to; ``place`` itself if it is one.
        direction: whether it is a forward or a backward operator.
        iteration: how many times it had run before.
        start: since the clock of its :class:`Executions` started.
        duration: from beginning to end.
        self_time: the duration, without the operators that ran inside this one.
        depth: how many operators of the same direction it ran inside of.
        inputs: what it was given; for a backward operator, gradients.
        outputs: what it gave.
        allocated: bytes of the accelerator's memory in use afterwards, None if it ran on the host.
        kept: by how many of them it changed that, None if its inputs were on the host.
    """

    place: Place
    forward: Place
    direction: Direction
    iteration: int
    start: int
    duration: int
    self_time: int
    depth: int
    inputs: Tensors
    outputs: Tensors
    allocated: int | None
    kept: int | None


class _Running:
    """An execution that has begun; ``inside`` is the time spent on those inside it."""

    __slots__ = ("accelerator", "allocated", "direction", "entered", "inputs", "inside", "start")

    def __init__(
        self,
        direction: Direction,
        entered: int,
        inputs: Tensors,
        accelerator: Accelerator | None,
    ) -> None:
        self.direction = direction
        self.entered = entered
        self.inputs = inputs
        self.accelerator = accelerator
        self.allocated = None if accelerator is None else accelerator.allocated()
        self.inside = 0
        self.start = 0


class _Site:
    """What is known of an operator at all its executions."""

    __slots__ = ("direction", "executed", "forward", "latest", "place", "running")

    def __init__(self, place: Place, forward: Place, direction: Direction) -> None:
        self.place = place
        self.forward = forward
        self.direction = direction
        self.executed = 0
        self.latest: Execution | None = None
        self.running: deque[_Running] = deque(maxlen=_DEEPEST)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.running: deque[_Running] = deque(maxlen=_DEEPEST)


class Executions(amanda.Tool):
    """Measures every execution and tells those who observe it.

    A tool that shows time depends on this one, so that several of them measure once. It calls
    :meth:`observe` in its analysis routine of an operator, forward or backward::

        class Slowest(amanda.Tool):
            def __init__(self):
                super().__init__()
                self.depends_on(Executions)
                self.add_inst_for_op(self.analyze)
                self.longest = 0

            def analyze(self, ctx):
                self.dependency(Executions).observe(ctx, self.record)

            def record(self, execution):
                self.longest = max(self.longest, execution.duration)

    The clock is read last before the operator and first after it, also when other tools have
    routines there; what the rest of the measurement takes is in :attr:`overhead` and in no
    operator's time. What is in it, beside the operator, is the driver's own work between the two
    readings: some microseconds, with PyTorch. With tensors on a CUDA
    device the host waits for the device at both points: each operator's time is its own, and the
    run as a whole is slower than without the tool.

    Attributes:
        overhead: nanoseconds that were spent on measuring and on those who observe.
    """

    innermost = True

    def __init__(self) -> None:
        super().__init__()
        self.overhead = 0
        self._origin = perf_counter_ns()
        self._thread = _Thread()
        self.add_inst_for_op(self._forward, opt_in=True)
        self.add_inst_for_op(self._backward, backward=True)

    def observe(self, ctx: amanda.OpContext, listener: Callable[[Execution], None]) -> None:
        """Have ``listener`` called after each execution of the operator under analysis.

        It is inserted on behalf of the tool whose analysis this is, and with it leaves force.
        """
        site = self._site(ctx)

        def tell() -> None:
            entered = perf_counter_ns()
            assert site.latest is not None
            listener(site.latest)
            self._spend(perf_counter_ns() - entered)

        if ctx.is_forward():
            ctx.insert_after_op(tell, outputs=[])
        else:
            ctx.insert_after_backward_op(tell, grad_inputs=[])

    def _forward(self, ctx: amanda.OpContext) -> None:
        begin, end = self._routines(self._site(ctx))
        ctx.insert_before_op(begin)
        ctx.insert_after_op(end)

    def _backward(self, ctx: amanda.OpContext) -> None:
        begin, end = self._routines(self._site(ctx))
        ctx.insert_before_backward_op(begin)
        ctx.insert_after_backward_op(end)

    def _site(self, ctx: amanda.OpContext) -> _Site:
        sites = ctx.state(self).setdefault("sites", {})
        operator = ctx.backward_op or ctx.op
        if operator not in sites:
            direction: Direction = "forward" if ctx.is_forward() else "backward"
            sites[operator] = _Site(Place.of(operator), Place.of(ctx.op), direction)
        return cast("_Site", sites[operator])

    def _routines(self, site: _Site) -> tuple[Callable[..., None], Callable[..., None]]:
        def begin(*tensors: Any) -> None:
            self._begin(site, tensors)

        def end(*tensors: Any) -> None:
            self._end(site, perf_counter_ns(), tensors)

        return begin, end

    def _begin(self, site: _Site, tensors: Sequence[Any]) -> None:
        entered = perf_counter_ns()
        around = self._thread.running
        if site.running and site.running[-1] in around:
            # it began here before and failed: what began since then will never end
            while around.pop() is not site.running[-1]:
                pass
        execution = _Running(site.direction, entered, _describe(tensors), accelerator_of(tensors))
        site.running.append(execution)
        around.append(execution)
        if execution.accelerator is not None:
            execution.accelerator.synchronize()
        execution.start = perf_counter_ns()
        self.overhead += execution.start - entered

    def _end(self, site: _Site, now: int, tensors: Sequence[Any]) -> None:
        execution = site.running.pop()
        allocated = kept = None
        accelerator = execution.accelerator or accelerator_of(tensors)
        if accelerator is not None:
            accelerator.synchronize()
            now = perf_counter_ns()
            allocated = accelerator.allocated()
            kept = None if execution.allocated is None else allocated - execution.allocated
        around = self._thread.running
        if execution in around:  # and not begun in another thread
            while around.pop() is not execution:
                pass  # failed inside of it
        duration = now - execution.start
        site.latest = Execution(
            site.place,
            site.forward,
            site.direction,
            site.executed,
            execution.start - self._origin,
            duration,
            duration - execution.inside,
            sum(other.direction == site.direction for other in around),
            execution.inputs,
            _describe(tensors),
            allocated,
            kept,
        )
        site.executed += 1
        left = perf_counter_ns()
        self.overhead += left - now
        if around:
            around[-1].inside += left - execution.entered

    def _spend(self, time: int) -> None:
        """Count time that was ours, and take it from the operator that it was inside of."""
        self.overhead += time
        if around := self._thread.running:
            around[-1].inside += time


def _describe(tensors: Sequence[Any]) -> Tensors:
    return Tensors(
        [None if tensor is None else _shape(tensor) for tensor in tensors],
        [None if tensor is None else _dtype_name(tensor.dtype) for tensor in tensors],
    )


def _shape(tensor: Any) -> list[int | None]:
    try:
        sizes = tensor.shape
    except RuntimeError:  # a nested tensor of PyTorch has none
        return [None] * tensor.dim()
    return [size if isinstance(size, int) else None for size in sizes]


_dtype_names: dict[Any, str] = {}


def _dtype_name(dtype: Any) -> str:
    """The dtype as every framework spells it: ``float32``."""
    name = _dtype_names.get(dtype)
    if name is None:
        name = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
        _dtype_names[dtype] = name
    return name
