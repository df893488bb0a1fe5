"""Measurement: ways of doing the same work take turns in one process.

A *way* is a function that is given the work and returns a context manager; within its block it
yields the call to be timed. So a way may do without the work, wrap it, or change what is around it.
"""

from __future__ import annotations

import contextlib
import gc
import random
import re
import statistics
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Call = Callable[[], object]
    Way = Callable[[Call], contextlib.AbstractContextManager[Call]]
    Clock = Callable[[], float]

_Key = TypeVar("_Key")

PLAIN = "plain"
TURN = 0.12  # seconds of timed calls that a way gets each time it has its turn
MOST_CALLS, MOST_ROUNDS = 40, 60
FOLDERS = re.compile(r"(?<!\w)/(?:[\w.@+-]+/)+")  # of this machine, which nobody else has


@dataclass(frozen=True)
class Spread:
    """The median and the quartiles of what was measured in some rounds."""

    median: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        """The spread of at least one value."""
        found = sorted(values)
        if len(found) == 1:
            return Spread(found[0], found[0], found[0], 1)
        low, median, high = statistics.quantiles(found, n=4, method="inclusive")
        return Spread(median, low, high, len(found))

    def text(self, form: str = "{:.2f}", scale: float = 1.0) -> str:
        """The median with its quartiles in brackets."""
        low, median, high = (
            form.format(scale * value) for value in (self.low, self.median, self.high)
        )
        return f"{median} ({low} to {high})"


@dataclass
class Measured:
    """What the turns of a way gave: seconds of a call in each round, or why there are none."""

    rounds: dict[int, float] = field(default_factory=dict)
    failure: str | None = None

    @property
    def seconds(self) -> Spread:
        """Seconds of a call."""
        return Spread.of(self.rounds.values())

    def ratio(self, plain: Measured) -> Spread:
        """How many times as long as plain: the two of each round are compared."""
        return Spread.of(
            seconds / plain.rounds[n] for n, seconds in self.rounds.items() if n in plain.rounds
        )

    def added(self, plain: Measured) -> Spread:
        """How many seconds more than plain, round by round."""
        return Spread.of(
            seconds - plain.rounds[n] for n, seconds in self.rounds.items() if n in plain.rounds
        )


def around(block: Callable[[], contextlib.AbstractContextManager[object]]) -> Way:
    """The way that does the work as it is, within a block."""

    @contextlib.contextmanager
    def way(work: Call) -> Iterator[Call]:
        with block():
            yield work

    return way


def plainly() -> Way:
    """The way that does the work with nothing around it."""
    return around(contextlib.nullcontext)


def reason(error: BaseException) -> str:
    """What an error says, in one short line of a table."""
    text = FOLDERS.sub("", " ".join(str(error).split())).replace("|", "/")
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__


def interleaved(
    work: Call,
    ways: Mapping[str, Way],
    seconds: float,
    *,
    least: int = 3,
    warmup: int = 2,
    clock: Clock = time.perf_counter,
    turn: float = TURN,
) -> dict[str, Measured]:
    """Time a call under each of some ways, which take turns in random order until time is up.

    Within a turn the first calls, in which operators are analyzed, are not timed; what counts is
    the median of those after. A way that fails is not tried again.

    Args:
        work: what is done; plain is the way of that name.
        ways: by name.
        seconds: how long all of it may take.
        least: rounds that are made even if they take longer.
        warmup: calls at the beginning of a turn that are not timed.
        clock: what tells seconds.
        turn: seconds of timed calls in a turn.

    Raises:
        RuntimeError: plain fails, which all is compared with.
    """
    found = interleaved_works(
        {name: (work, way) for name, way in ways.items()},
        seconds,
        least=least,
        warmup=warmup,
        clock=clock,
        turn=turn,
    )
    if found[PLAIN].failure is not None:
        raise RuntimeError(f"it does not run: {found[PLAIN].failure}")
    return found


def interleaved_works(
    works: Mapping[_Key, tuple[Call, Way]],
    seconds: float,
    *,
    least: int = 3,
    warmup: int = 2,
    clock: Clock = time.perf_counter,
    turn: float = TURN,
) -> dict[_Key, Measured]:
    """Time several calls, each in a way of its own, as :func:`interleaved` does."""
    found: dict[_Key, Measured] = {name: Measured() for name in works}
    order, shuffle = list(works), random.Random(0).shuffle
    end = time.perf_counter() + seconds
    gc.collect()
    gc.freeze()  # what is there already is not walked by the collections of timed calls
    for round_number in range(MOST_ROUNDS):
        began = time.perf_counter()
        shuffle(order)
        for name in order:
            if found[name].failure is not None:
                continue
            work, way = works[name]
            try:
                with way(work) as call:
                    found[name].rounds[round_number] = _turn(call, warmup, clock, turn)
            except Exception as error:  # a row that says so, never the end of the run
                found[name].failure = reason(error)
                traceback.print_exc()
        now = time.perf_counter()
        if round_number + 1 >= least and now + (now - began) > end:
            break
    return found


def _turn(call: Call, warmup: int, clock: Clock, turn: float) -> float:
    for _ in range(warmup):
        call()
    times: list[float] = []
    end = time.perf_counter() + turn
    while not times or (len(times) < MOST_CALLS and time.perf_counter() < end):
        start = clock()
        call()
        times.append(clock() - start)
    return statistics.median(times)
