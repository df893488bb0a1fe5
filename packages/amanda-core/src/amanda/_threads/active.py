"""Tools are active in a thread, and drivers are told which; blocks of the program switch that."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from amanda._drivers.discovery import known_drivers, leave_out, loaded_drivers
from amanda._drivers.driver import Driver
from amanda._drivers.vocabulary import check_sees
from amanda._errors import AmandaError
from amanda._operators.operator import ByOperator
from amanda._threads.block import LEFT_ELSEWHERE, Block
from amanda._threads.routine import in_routine_first

if TYPE_CHECKING:
    from amanda._contexts.context import OpContext
    from amanda._plans.engine import Engine
    from amanda._tools.tool import Tool


class Scope:
    """A scope is one ``with amanda.apply(...)`` block; it is ``open`` until it is left.

    ``seen`` has the types of the operators that ran in it, by vocabulary, as far as engines saw
    them, and ``gradients`` those of backward ones. ``places`` has the scopes in the model where
    operators ran. If tools look at modules, ``paths`` and ``classes`` are those of the modules that
    were called.
    """

    def __init__(self) -> None:
        self.open = True
        self.seen: defaultdict[str, set[str]] = defaultdict(set)
        self.gradients: defaultdict[str, set[str]] = defaultdict(set)
        self.places: set[str] = set()
        self.paths: set[str] = set()
        self.classes: set[str] = set()


class Active(NamedTuple):
    """These tools are active, with what their routines share.

    Attributes:
        owners: for each tool, the scope that made it active.
        scope: the innermost one.
        contexts: those of operators, shared by the engines of a scope and those within it.
    """

    owners: Mapping[Tool, Scope]
    scope: Scope
    contexts: ByOperator[OpContext]


class State(NamedTuple):
    """A state is what is active in a thread; it is never changed, only exchanged for another.

    Attributes:
        tools: those that are at work if it is ``enabled``.
        active: them, and in a routine those that are set aside.
        engine_of: gives the engine for a driver, always the same one; None where no tool looks.
        caching: whether what they decide is kept.
    """

    tools: tuple[Tool, ...] = ()
    active: Active = Active({}, Scope(), ByOperator())
    engine_of: Callable[[Driver], Engine | None] = lambda driver: None
    enabled: bool = True
    caching: bool = True

    def engine(self, driver: Driver) -> Engine | None:
        """Return the engine for a driver, None when no tool is at work on it."""
        engine = self.engine_of(driver)
        if engine is not None:
            engine.set_caching(self.caching)
        return engine if self.enabled else None


@dataclass(eq=False, repr=False)
class _Layer:
    """A layer is a block that was entered: how it changes the state, and the state before it."""

    change: Callable[[State], State]
    before: State


class _Thread(threading.local):
    state = State()

    def __init__(self) -> None:
        self.layers: list[_Layer] = []  # innermost last


_thread = _Thread()


def enabled() -> Block:
    """Have the active tools at work again within a ``disabled()`` block."""
    return Block(lambda: switched(lambda state: state._replace(enabled=True)))


def disabled() -> Block:
    """Have no tool at work in this thread for a ``with`` block."""
    return Block(lambda: switched(lambda state: state._replace(enabled=False)))


def is_enabled() -> bool:
    """Tell whether the active tools of this thread are at work."""
    return _thread.state.enabled


def cache_enabled() -> Block:
    """Keep what analysis routines decide, within a ``cache_disabled()`` block."""
    return Block(lambda: switched(lambda state: state._replace(caching=True)))


def cache_disabled() -> Block:
    """Ask the analysis routines anew at every execution, for a ``with`` block."""
    return Block(lambda: switched(lambda state: state._replace(caching=False)))


def is_cache_enabled() -> bool:
    """Tell whether what analysis routines decide is kept."""
    return _thread.state.caching


@contextlib.contextmanager
def switched(change: Callable[[State], State]) -> Iterator[None]:
    in_routine_first(_set_aside)
    layer = _put_on(change)
    try:
        refresh()
        yield
    finally:
        in_routine_first(_set_aside)  # it may leave a block that it has not entered
        _take_off(layer)
        refresh()


def _put_on(change: Callable[[State], State]) -> _Layer:
    layer = _Layer(change, _thread.state)
    _thread.state = change(layer.before)
    _thread.layers.append(layer)
    return layer


def _set_aside() -> Callable[[], None]:
    """Have no tool active, and return what undoes that."""
    layer = _put_on(lambda state: State(active=state.active))
    drivers = list(known_drivers())
    suspended: dict[Driver, Any] = {}

    def restore() -> None:
        _take_off(layer)
        state = _thread.state
        with contextlib.ExitStack() as telling:  # each of them is told, also if another one fails
            for driver in known_drivers():
                if driver in suspended:
                    telling.callback(driver.resume, suspended[driver], state.engine(driver))
                elif driver not in drivers:  # the routine has imported its framework
                    telling.callback(_activate, driver, state)

    try:
        for driver in drivers:
            suspended[driver] = driver.suspend()
    except BaseException:
        restore()
        raise
    return restore


def _take_off(layer: _Layer) -> None:
    """Restore what was before a block, under those that were entered later and are still open.

    A generator or a task of asyncio may leave its block before a later one is left.
    """
    layers = _thread.layers
    if layer not in layers:  # what has entered it was freed in another thread
        raise AmandaError(LEFT_ELSEWHERE)
    index = layers.index(layer)
    state = layer.before
    for later in layers[index + 1 :]:
        later.before = state
        state = later.change(state)
    del layers[index]
    _thread.state = state


def refresh() -> None:
    """Tell the drivers what is active in this thread."""
    state = _thread.state
    drivers = loaded_drivers() if state.tools else known_drivers()
    for tool in state.tools:
        check_sees(tool, drivers)
    with contextlib.ExitStack() as telling:  # each of them is told, also if another one fails
        for driver in reversed(drivers):
            telling.callback(_activate, driver, state)


def _activate(driver: Driver, state: State) -> None:
    try:
        driver.activate(state.engine(driver))
    except AmandaError:
        raise
    except Exception as error:
        leave_out(driver, error)
