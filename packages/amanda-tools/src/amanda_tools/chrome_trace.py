"""A Chrome trace shows executions in rows of operators, nested in the modules that they are in.

Arrows lead from a forward execution to those of its backward, and a row has a slice for each step.

The format is the JSON Array Format of the Trace Event Format, which Perfetto and chrome://tracing
open; its times are microseconds.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amanda_tools.interrupts import uninterrupted
from amanda_tools.log import Log
from amanda_tools.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda_tools.execution import Direction, Execution, Kind, Tensors
    from amanda_tools.place import Model, Place
    from amanda_tools.steps import Step

_BATCH = 1000  # executions that are placed at a time
_WITHOUT_BACKWARD = 64  # forward executions of an operator that may wait for their backward
_WAITING = 10_000  # those that may wait for the one that they ran inside of


class ChromeTrace:
    """This writes executions as they end, to a file that is complete after every :meth:`flush`.

    Modules are derived from the scopes of operators alone: one begins with its first operator and
    ends when an operator outside of it follows, or when an operator runs for a second time, which
    within one pass through a model none does. A trace of one step has no row of steps.

    Raises:
        OSError: it cannot be written there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._log = Log(path, str, header="[\n", separator=",\n", footer="\n]\n")
        self._rows: dict[tuple[Direction, int], _Row] = {}
        self._pending: deque[tuple[int, Execution]] = deque()
        self._lock = threading.Lock()
        self._begun = False
        self._steps = Steps()
        self._first_step: Step | None = None  # written when there is a second one
        self._step_row: int | None = None
        self._arrows = _Arrows()

    @property
    def state(self) -> str:
        """Tell where the trace is written, and why that is not all."""
        return self._log.state

    def open(self) -> None:
        """Make the file, which the first execution does otherwise.

        Raises:
            OSError: it cannot be written.
        """
        self._log.open()

    def add(self, execution: Execution) -> None:
        """Add an execution that has ended in this thread."""
        self._pending.append((threading.get_ident(), execution))
        if len(self._pending) >= _BATCH:
            with self._lock, uninterrupted():
                self._take()

    def label(self, text: str) -> None:
        """Have a reader show this beside the name of the process."""
        with self._lock:
            self._write(_metadata("process_labels", labels=text))

    def flush(self) -> None:
        """End the modules that are open, and bring the file up to date."""
        with self._lock, uninterrupted():
            self._take()
            for row in self._rows.values():
                self._write(*row.place(), *row.close())
            self._write_steps(self._steps.close())
            self._write()  # a trace without executions is a complete file too
            self._log.flush()

    def _take(self) -> None:
        """Place what was added. Other threads may add some meanwhile."""
        events: list[str] = []
        for _ in range(len(self._pending)):
            thread, execution = self._pending.popleft()
            row = self._row(execution.kind.direction, thread)
            if row.add(execution):
                events += row.place()
            events += self._arrows.add(execution, row.number)
            if ended := self._steps.add(execution):
                self._write_steps(ended)
            if execution.allocated is not None:
                at = (execution.start + execution.duration) / 1000
                memory = {"allocated": execution.allocated}
                events.append(_event(ph="C", name="memory", ts=at, args=memory))
        self._write(*events)

    def _row(self, direction: Direction, thread: int) -> _Row:
        key = (direction, thread)
        if key not in self._rows:
            others = 1 + sum(other == direction for other, _ in self._rows)
            name = direction if others == 1 else f"{direction}, thread {others}"
            self._rows[key] = _Row(self._name_row(name))
        return self._rows[key]

    def _name_row(self, name: str) -> int:
        """Name a new row, and return its number."""
        number = 1 + len(self._rows) + (self._step_row is not None)
        self._write(
            _metadata("thread_name", number, name=name),
            _metadata("thread_sort_index", number, sort_index=number if name != "steps" else 0),
        )
        return number

    def _write_steps(self, steps: Sequence[Step]) -> None:
        if not steps:
            return
        if self._step_row is None:
            first, *more = steps if self._first_step is None else (self._first_step, *steps)
            if not more:
                self._first_step = first
                return
            self._step_row = self._name_row("steps")
            steps = [first, *more]
        for step in steps:
            duration = step.end - step.start
            self._write(
                _slice(self._step_row, f"step {step.number + 1}", "step", step.start, duration, "")
            )

    def _write(self, *events: str) -> None:
        begin = () if self._begun else (_metadata("process_name", name="amanda"),)
        self._begun = True
        self._log.write(*begin, *events)


class _Row:
    """A row is a track of the trace. An execution waits for the one that it ran inside of."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._modules = _Modules(number)
        self._waiting: list[Execution] = []

    def add(self, execution: Execution) -> bool:
        """Take an execution, and tell whether it is time to place what was taken."""
        self._waiting.append(execution)
        return len(self._waiting) >= (_WAITING if execution.depth else _BATCH)

    def place(self) -> list[str]:
        """Place what was taken, and return the events that can be written now."""
        self._place(sorted(self._waiting, key=lambda e: e.start), self._modules)
        self._waiting.clear()
        return self._modules.take()

    def close(self) -> list[str]:
        """End the modules that are open, and return their events."""
        self._modules.leave(0)
        return self._modules.take()

    def _place(self, executions: Sequence[Execution], modules: _Modules) -> None:
        """Put executions into modules, in the order of their start, with what ran inside them."""
        position = 0
        while position < len(executions):
            execution = executions[position]
            end = execution.start + execution.duration
            following = position + 1
            while following < len(executions) and executions[following].start < end:
                following += 1
            events = [_operator(self.number, execution)]
            if following > position + 1:
                inside = _Modules(self.number)
                self._place(executions[position + 1 : following], inside)
                inside.leave(0)
                events += inside.take()
            modules.add(execution, events)
            position = following


class _Arrows:
    """These arrows lead from forward executions to those of their backward operators.

    A backward operator belongs to the latest forward execution that it has not run for.
    """

    def __init__(self) -> None:
        self._forward: dict[Place, deque[_Begun]] = {}
        self._drawn = 0

    def add(self, execution: Execution, row: int) -> Sequence[str]:
        """Return the events of the arrow that ends at an execution, if one does."""
        kind, at = execution.kind, execution.start / 1000
        waiting = self._forward.get(kind.forward)
        if kind.direction == "forward":
            if waiting is None:
                waiting = self._forward[kind.forward] = deque(maxlen=_WITHOUT_BACKWARD)
            waiting.append(_Begun(at, row))
            return ()
        backward = kind.place.id
        for begun in reversed(waiting or ()):
            if backward not in begun.done:
                begun.done += (backward,)
                self._drawn += 1
                ends = f'"name": "backward", "cat": "backward", "id": {self._drawn}'
                return (
                    f'{{"pid": {os.getpid()}, "ph": "s", "tid": {begun.row}, "ts": {begun.at}, '
                    f"{ends}}}",
                    f'{{"pid": {os.getpid()}, "ph": "f", "bp": "e", "tid": {row}, "ts": {at}, '
                    f"{ends}}}",
                )
        return ()


@dataclass(slots=True, eq=False)
class _Begun:
    """This is where a forward execution began, with the backward operators that have run for it."""

    at: float
    row: int
    done: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class _Module:
    """This module is running; its time is that from its first operator to its last."""

    name: str
    start: int
    end: int
    events: list[str] = field(default_factory=list)


class _Modules:
    """This has the modules around executions that run one after the other.

    What is in a module waits until it has ended, so that it follows the module itself: of two
    slices that take the same time, readers nest the second one in the first.
    """

    def __init__(self, row: int) -> None:
        self._row = row
        self._open: list[_Module] = []
        self._model: Model | None = None
        self._met: set[str] = set()
        self._ended: list[str] = []

    def add(self, execution: Execution, events: list[str]) -> None:
        """Add the events of an execution, with exactly the modules open that it is in."""
        place, model = execution.kind.place, execution.kind.forward.model
        scope = place.modules
        start, end = execution.start, execution.start + execution.duration
        depth = 0
        if place.id in self._met or model != self._model:
            self._met.clear()
        else:
            for module, name in zip(self._open, scope, strict=False):
                if module.name != name:
                    break
                depth += 1
        self._model = model
        self._met.add(place.id)
        self.leave(depth)
        for module in self._open:
            module.end = end
        self._open += (_Module(name, start, end) for name in scope[depth:])
        self._emit(events)

    def leave(self, depth: int) -> None:
        """End the modules that are open, down to ``depth`` of them."""
        while len(self._open) > depth:
            scope = ".".join(module.name for module in self._open)
            module = self._open.pop()
            duration = module.end - module.start
            said = f'"scope": {_quoted(scope)}'
            event = _slice(self._row, module.name, "module", module.start, duration, said)
            self._emit([event, *module.events])

    def take(self) -> list[str]:
        """Return the events of what has ended since the last call."""
        events, self._ended = self._ended, []
        return events

    def _emit(self, events: list[str]) -> None:
        (self._open[-1].events if self._open else self._ended).extend(events)


def _operator(row: int, execution: Execution) -> str:
    kind, number, start, duration = execution[:4]
    before, after = kind.once(_said)
    said = f'{before}, "iteration": {number}, {after}'
    return _slice(row, kind.place.type, "operator", start, duration, said)


def _said(kind: Kind) -> tuple[str, str]:
    """Tell of an operator what stands ahead of the number of the execution, and after it."""
    before = {"id": kind.place.id, "scope": kind.place.scope}
    after: dict[str, Any] = {"operator": kind.forward.id, "source": kind.source}
    if kind.forward.purpose != "model":
        after["purpose"] = kind.forward.purpose
    after["inputs"], after["outputs"] = _signature(kind.inputs), _signature(kind.outputs)
    return json.dumps(before)[1:-1], json.dumps(after)[1:-1]


def _slice(row: int, name: str, category: str, start: int, duration: int, said: str) -> str:
    return (
        f'{{"pid": {os.getpid()}, "ph": "X", "tid": {row}, "name": {_quoted(name)}, '
        f'"cat": "{category}", "ts": {start / 1000}, "dur": {duration / 1000}, '
        f'"args": {{{said}}}}}'
    )


def _metadata(what: str, row: int = 0, **args: Any) -> str:
    return _event(ph="M", tid=row, name=what, args=args)


def _event(**fields: Any) -> str:
    return json.dumps({"pid": os.getpid(), **fields})


_quoted = functools.lru_cache(maxsize=4096)(json.dumps)


def _signature(tensors: Tensors) -> list[str]:
    """Write tensors as ``float32[8, 128]``."""
    return [
        "none" if shape is None else f"{dtype}{shape}"
        for shape, dtype in zip(tensors.shapes, tensors.dtypes, strict=True)
    ]
