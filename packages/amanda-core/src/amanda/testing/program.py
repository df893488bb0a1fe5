"""Small models are described here so that every backend can build them.

A program is one step a line, ``result = layer/kind(operands)``::

    h = hidden/matmul(x, w1)
    a = act/relu(h)
    a = extra/relu(a) if deep
    y = head/matmul(a, w2)

A layer is a module or name scope; a layer that has two steps is one that is called twice. An
operand is a parameter (its value is given to :meth:`amanda.testing.Adapter.build`), an input, or
the result of an earlier step. A step with ``if`` is left out unless that switch is on. The result
of the last step is the model's output. A step may be carried out in a loop, which hands its result
on as its first operand::

    y = turn/multiply(x, w) 3 times

=========== ==================== ===========================================
kind        operands             results
=========== ==================== ===========================================
matmul      x (m, k), w (k, n)   x @ w
add         x, y                 x + y
multiply    x, y                 x * y
relu        x                    max(x, 0)
sigmoid     x                    1 / (1 + exp(-x))
select      mask (bool), x, y    x where mask, else y
unstack     x (2, ...)           x[0] and x[1]: two results of one operator
range       none                 0, 1, 2 as float32: an operator that takes no tensors
relu_       x                    max(x, 0), written into x (in-place backends)
=========== ==================== ===========================================
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

_T = TypeVar("_T")

_STEP = re.compile(
    r"(?P<results>[\w, ]+?) = (?P<layer>\w+)/(?P<kind>\w+)\((?P<operands>[\w, ]*)\)"
    r"( (?P<times>\d+) times)?( if (?P<switch>\w+))?"
)


def _loop(times: int, body: Callable[[_T], _T], value: _T) -> _T:
    for _ in range(times):
        value = body(value)
    return value


class Step(NamedTuple):
    """A step is one operator of a program, which may be in a loop."""

    results: tuple[str, ...]
    layer: str
    kind: str
    operands: tuple[str, ...]
    switch: str | None
    times: int = 1


class Program:
    """A program is a small model.

    Attributes:
        steps: its operators in order.
        switches: the names of the switches that choose among them.
        output: the name of the value that the model gives.
    """

    def __init__(self, text: str) -> None:
        self.steps = [_parse(line.strip()) for line in text.strip().splitlines()]
        self.switches = {step.switch for step in self.steps if step.switch is not None}
        (self.output,) = self.steps[-1].results

    def inputs(self, parameters: Collection[str]) -> list[str]:
        """List the names of the values that it is called with, given those of its parameters."""
        known = set(parameters)
        names = []
        for step in self.steps:
            for name in step.operands:
                if name not in known:
                    names.append(name)
                    known.add(name)
            known.update(step.results)
        return names

    def run(
        self,
        call: Callable[[Step, list[_T]], Sequence[_T]],
        values: Mapping[str, _T],
        switches: Collection[str] = (),
        loop: Callable[[int, Callable[[_T], _T], _T], _T] = _loop,
    ) -> _T:
        """Run it step by step.

        Args:
            call: runs one step on its operands and gives its results.
            values: parameters and inputs by name.
            switches: those that are on.
            loop: ``loop(times, body, value)`` is what the body makes of a value when it is given
                its own result again; Python's loop by default.
        """
        values = dict(values)
        for step in self.steps:
            if step.switch is None or step.switch in switches:
                operands = [values[name] for name in step.operands]
                results = run_step(call, step, operands, loop)
                values.update(zip(step.results, results, strict=True))
        return values[self.output]


def run_step(
    call: Callable[[Step, list[_T]], Sequence[_T]],
    step: Step,
    operands: list[_T],
    loop: Callable[[int, Callable[[_T], _T], _T], _T] = _loop,
) -> Sequence[_T]:
    """Return the results of one step, as :meth:`Program.run` says."""
    if step.times == 1:
        return call(step, operands)
    first, *others = operands
    return [loop(step.times, lambda value: call(step, [value, *others])[0], first)]


def _parse(line: str) -> Step:
    match = _STEP.fullmatch(line)
    if match is None:
        raise ValueError(f"{line!r} is not a step 'result = layer/kind(operands)'")
    return Step(
        results=tuple(match["results"].split(", ")),
        layer=match["layer"],
        kind=match["kind"],
        operands=tuple(filter(None, match["operands"].split(", "))),
        switch=match["switch"],
        times=int(match["times"] or 1),
    )
