"""Every execution is measured once for all tools that show time."""

from __future__ import annotations

import threading
from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import amanda

from amanda_tools.execution import Execution, Kind, Tensors
from amanda_tools.place import Place, source_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda_tools.execution import Direction

# Operators inside each other. Those that failed never end, and make room at last.
_DEEPEST = 256

_new = tuple.__new__  # a NamedTuple's own constructor takes twice as long


class _Seen:
    """These are tensors as the driver described them, and what follows from that.

    Attributes:
        infos: what it said.
        told: what listeners are told of them.
        device: the device beside the host that some are on, the first; None if there is none.
    """

    def __init__(self, driver: amanda.Driver, infos: list[amanda.TensorInfo | None]) -> None:
        self.infos = infos
        self.told = Tensors(
            [None if info is None or info.shape is None else list(info.shape) for info in infos],
            [None if info is None else info.dtype for info in infos],
        )
        devices = dict.fromkeys(info.device for info in infos if info is not None)
        beside = (d for d in devices if d is not None and driver.allocated(d) is not None)
        self.device = next(beside, None)


class _Running:
    """This execution has begun; ``inside`` is the time spent on those inside it.

    Its attributes are set one by one: arguments would take as long as the rest of the work.
    """

    direction: Direction
    entered: int
    start: int
    inputs: _Seen
    allocated: int | None = None
    inside = 0


class _Site:
    """A site is what is known of an operator at all its executions, and was seen at the last ones.

    Most executions are like the one before, of which all that shapes tell is known.
    """

    def __init__(
        self, ctx: amanda.OpContext, place: Place, forward: Place, direction: Direction
    ) -> None:
        self.source = source_text(ctx.op)
        self.driver = ctx.driver
        self.place = place
        self.forward = forward
        self.direction: Direction = direction
        self.executed = 0
        self.latest: Execution | None = None
        self.running: deque[_Running] = deque(maxlen=_DEEPEST)
        self.inputs = self.outputs = _Seen(self.driver, [])
        self._like = self._kind(self.inputs, self.outputs)

    def kind(self, inputs: _Seen, outputs: _Seen) -> Kind:
        """Return the kind of an execution: what it has in common with others that saw the same."""
        like = self._like
        if like[0] is not inputs or like[1] is not outputs:
            like = self._like = self._kind(inputs, outputs)
        return like[2]

    def _kind(self, inputs: _Seen, outputs: _Seen) -> tuple[_Seen, _Seen, Kind]:
        tensors = inputs.told, outputs.told
        kind = Kind(self.place, self.forward, self.direction, self.source, *tensors)
        return inputs, outputs, kind


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
        self.add_inst_for_op(self._backward, backward=True, keep_forward=False)

    def observe(self, ctx: amanda.OpContext, listener: Callable[[Execution], None]) -> None:
        """Have ``listener`` called after each execution of the operator under analysis.

        It is inserted on behalf of the tool whose analysis this is, and with it leaves force.
        """
        site, thread = self._site(ctx), self._thread

        def tell() -> None:
            entered = perf_counter_ns()
            assert site.latest is not None
            listener(site.latest)
            spent = perf_counter_ns() - entered
            self.overhead += spent
            if around := thread.running:  # the operator that this one ran inside of
                around[-1].inside += spent

        if ctx.is_forward():
            ctx.insert_after_op(tell, outputs=[])
        else:
            ctx.insert_after_backward_op(tell, grad_inputs=[])

    def _forward(self, ctx: amanda.OpContext) -> None:
        site = self._site(ctx)
        ctx.insert_before_op(self._beginning(site))
        ctx.insert_after_op(self._ending(site))

    def _backward(self, ctx: amanda.OpContext) -> None:
        site = self._site(ctx)
        ctx.insert_before_backward_op(self._beginning(site))
        ctx.insert_after_backward_op(self._ending(site))

    def _site(self, ctx: amanda.OpContext) -> _Site:
        state = ctx.state(self)
        sites: dict[amanda.Operator, _Site] = state.setdefault("sites", {})
        operator = ctx.backward_op or ctx.op
        if operator not in sites:
            if ctx.is_forward():
                place = state["place"] = Place.at(ctx)
                sites[operator] = _Site(ctx, place, place, "forward")
            else:
                # the forward operator may have run before the scope
                forward = state.get("place") or Place.in_model(ctx)
                sites[operator] = _Site(ctx, Place.of(operator), forward, "backward")
        return sites[operator]

    def _beginning(self, site: _Site) -> Callable[..., None]:
        """Return the routine that reads the clock last before an operator."""
        driver, thread, running = site.driver, self._thread, site.running
        describe, direction = driver.describe, site.direction

        def begin(*tensors: Any) -> None:
            entered = perf_counter_ns()
            around = thread.running
            if running and running[-1] in around:
                # it began here before and failed: what began since then will never end
                _leave(around, running[-1])
            infos = [None if tensor is None else describe(tensor) for tensor in tensors]
            inputs = site.inputs
            if infos != inputs.infos:
                inputs = site.inputs = _Seen(driver, infos)
            execution = _Running()
            execution.direction = direction
            execution.entered = entered
            execution.inputs = inputs
            if inputs.device is not None:
                execution.allocated = driver.allocated(inputs.device)
            running.append(execution)
            around.append(execution)
            if inputs.device is not None:
                driver.synchronize(inputs.device)
            execution.start = start = perf_counter_ns()
            self.overhead += start - entered

        return begin

    def _ending(self, site: _Site) -> Callable[..., None]:
        """Return the routine that reads it first after the operator, and tells of the execution."""
        driver, thread, running = site.driver, self._thread, site.running
        describe, direction = driver.describe, site.direction

        def end(*tensors: Any) -> None:
            now = perf_counter_ns()
            execution = running.pop()
            device = execution.inputs.device
            if device is not None:
                driver.synchronize(device)
                now = perf_counter_ns()
            infos = [None if tensor is None else describe(tensor) for tensor in tensors]
            outputs = site.outputs
            if infos != outputs.infos:
                outputs = site.outputs = _Seen(driver, infos)
            if device is None and outputs.device is not None:
                device = outputs.device
                driver.synchronize(device)
                now = perf_counter_ns()
            allocated = None if device is None else driver.allocated(device)
            kept = None
            if allocated is not None and execution.allocated is not None:
                kept = allocated - execution.allocated
            around = thread.running
            if execution in around:  # and not begun in another thread
                _leave(around, execution)
            start, duration = execution.start, now - execution.start
            fields = (
                site.kind(execution.inputs, outputs),
                site.executed,
                start - self._origin,
                duration,
                duration - execution.inside,
                sum([other.direction == direction for other in around]) if around else 0,
                allocated,
                kept,
            )
            site.latest = _new(Execution, fields)
            site.executed += 1
            left = perf_counter_ns()
            self.overhead += left - now
            if around:
                around[-1].inside += left - execution.entered

        return end


def _leave(around: deque[_Running], execution: _Running) -> None:
    """End an execution that has ended or failed, with all that has failed inside of it."""
    while around.pop() is not execution:
        pass
