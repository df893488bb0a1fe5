"""Every execution, measured once for all tools that show time."""

from __future__ import annotations

import threading
from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import amanda

from amanda_tools.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
        source: file and line of the program's code that runs the forward operator, or made its
            node of a graph, as ``model.py:12``; None if nobody can tell.
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
    source: str | None = None


class _Running:
    """An execution that has begun; ``inside`` is the time spent on those inside it."""

    __slots__ = ("allocated", "device", "direction", "entered", "inputs", "inside", "start")

    def __init__(
        self,
        direction: Direction,
        entered: int,
        inputs: Tensors,
        device: str | None,
        allocated: int | None,
    ) -> None:
        self.direction = direction
        self.entered = entered
        self.inputs = inputs
        self.device = device
        self.allocated = allocated
        self.inside = 0
        self.start = 0


class _Site:
    """What is known of an operator at all its executions."""

    __slots__ = (
        *("direction", "driver", "executed", "forward"),
        *("latest", "place", "running", "source"),
    )

    def __init__(
        self, ctx: amanda.OpContext, place: Place, forward: Place, direction: Direction
    ) -> None:
        source = ctx.op.source
        self.source = None if source is None else str(source)
        self.driver = ctx.driver
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
        state = ctx.state(self)
        sites: dict[amanda.Operator, _Site] = state.setdefault("sites", {})
        operator = ctx.backward_op or ctx.op
        if operator not in sites:
            if ctx.is_forward():
                place = state["place"] = Place.at(ctx)
                sites[operator] = _Site(ctx, place, place, "forward")
            else:
                forward = state.get("place") or Place.in_model(
                    ctx
                )  # it may have run before the scope
                sites[operator] = _Site(ctx, Place.of(operator), forward, "backward")
        return sites[operator]

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
        driver, given = site.driver, _described(site.driver, tensors)
        device = _accelerator_of(driver, given)
        allocated = None if device is None else driver.allocated(device)
        execution = _Running(site.direction, entered, _signature(given), device, allocated)
        site.running.append(execution)
        around.append(execution)
        if device is not None:
            driver.synchronize(device)
        execution.start = perf_counter_ns()
        self.overhead += execution.start - entered

    def _end(self, site: _Site, now: int, tensors: Sequence[Any]) -> None:
        execution = site.running.pop()
        driver, device = site.driver, execution.device
        if device is not None:
            driver.synchronize(device)
            now = perf_counter_ns()
        given = _described(driver, tensors)
        if device is None and (device := _accelerator_of(driver, given)) is not None:
            driver.synchronize(device)
            now = perf_counter_ns()
        allocated = None if device is None else driver.allocated(device)
        kept = None
        if allocated is not None and execution.allocated is not None:
            kept = allocated - execution.allocated
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
            _signature(given),
            allocated,
            kept,
            site.source,
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


def _described(driver: amanda.Driver, tensors: Sequence[Any]) -> list[amanda.TensorInfo | None]:
    return [None if tensor is None else driver.describe(tensor) for tensor in tensors]


def _accelerator_of(driver: amanda.Driver, given: Sequence[amanda.TensorInfo | None]) -> str | None:
    """The device beside the host that some tensors are on, the first; None if there is none."""
    known = None  # most tensors of an operator are on one device
    for info in given:
        device = None if info is None else info.device
        if device is not None and device != known:
            if driver.allocated(device) is not None:
                return device
            known = device
    return None


def _signature(given: Sequence[amanda.TensorInfo | None]) -> Tensors:
    return Tensors(
        [None if info is None or info.shape is None else list(info.shape) for info in given],
        [None if info is None else info.dtype for info in given],
    )
