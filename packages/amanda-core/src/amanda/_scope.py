"""Scopes say which tools are active in a thread."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from amanda._audience import Active
from amanda._block import LEFT_ELSEWHERE, Block
from amanda._context import OpContext
from amanda._discovery import framework_watch, known_drivers, leave_out, loaded_drivers
from amanda._driver import Driver
from amanda._engine import Engine
from amanda._errors import AmandaError, DependencyCycleError
from amanda._operator import ByOperator
from amanda._routine import in_routine_first
from amanda._subscription import View
from amanda._tool import Tool
from amanda._unmatched import Scope, warn_of_unmatched
from amanda._vocabulary import check_sees, is_understood


@dataclass(slots=True, eq=False)
class _State:
    """A state is what is active in a thread; it is never changed, only exchanged for another.

    States that differ in their switches alone share the engines.
    """

    tools: tuple[Tool, ...]
    active: Active
    enabled: bool = True
    caching: bool = True
    engines: dict[Driver, Engine | None] = field(default_factory=dict)

    def engine(self, driver: Driver) -> Engine | None:
        """Return the engine for a driver, None when no tool is active on it."""
        if driver not in self.engines:
            understood = [tool for tool in self.tools if is_understood(tool, driver)]
            every = (s for tool in understood for s in tool.subscriptions)
            seen = [s for s in every if s.view is not View.MODULE or driver.has_modules]
            self.engines[driver] = Engine(driver, seen, self.active) if seen else None
        engine = self.engines[driver]
        if engine is not None:
            engine.set_caching(self.caching)
        return engine if self.enabled else None


@dataclass(slots=True, eq=False)
class _Layer:
    """A layer is a block that was entered: how it changes the state, and the state before it."""

    change: Callable[[_State], _State]
    before: _State


class _Thread(threading.local):
    state = _State((), Active())

    def __init__(self) -> None:
        self.layers: list[_Layer] = []  # innermost last


_thread = _Thread()


def apply(*tools: Tool) -> Block:
    """Make tools active in this thread, with all they depend on, for a ``with`` block.

    Scopes nest: inside, the tools of the outer scope come first. Leaving restores exactly what
    was before. Usable as a decorator too, and more than once. What takes turns in a thread (tasks
    of asyncio, a generator that holds a scope) runs under the tools of all scopes that are open
    then. In a scope that a routine opens its tools, and only they, are active.

    Raises:
        TypeError: an argument is not a tool.
        DependencyCycleError: tools depend on each other in a circle.
        MissingDriverError: the framework in use has no driver installed.
        MissingContextMapError: a tool speaks a vocabulary that nothing translates to.
        UnsupportedError: a tool looks at modules, and no backend in use shows them.
        AmandaError: it is left in another thread than it was entered in.
    """
    for tool in tools:
        if not isinstance(tool, Tool):
            hint = f"; write {tool.__name__}(...)" if isinstance(tool, type) else ""
            hint = "; write amanda.apply(*tools)" if isinstance(tool, (list, tuple)) else hint
            raise TypeError(f"amanda.apply takes tools, not {tool!r}{hint}")
        if type(tool).__eq__ is not object.__eq__:  # else two that are equal would be taken for one
            raise TypeError(
                f"a tool is equal to itself alone, but {type(tool).__name__} defines __eq__; "
                "if it is a dataclass, write @dataclass(eq=False)"
            )
    return Block(lambda: _applied(tools))


@contextlib.contextmanager
def _applied(tools: Sequence[Tool]) -> Iterator[None]:
    process = os.getpid()
    scope = Scope()
    contexts: ByOperator[OpContext] = ByOperator()  # in use where it is outermost, or becomes that
    owners: Mapping[Tool, Scope] = {}

    def change(before: _State) -> _State:
        nonlocal owners
        order = in_order(tools, before.tools)
        owners = {tool: before.active.owners.get(tool, scope) for tool in order}
        active = Active(owners, scope, before.active.contexts if before.tools else contexts)
        return _State(tuple(order), active, before.enabled, before.caching)

    entered: set[Driver] = set()

    def enter() -> None:
        for driver in [known for known in known_drivers() if known not in entered]:
            entered.add(driver)
            for tool in (tool for tool, owner in owners.items() if owner is scope):
                tool.on_enter(driver)

    def imported() -> None:
        _refresh()
        enter()

    with contextlib.ExitStack() as leaving:  # every tool's turn comes, also if one fails
        try:
            with framework_watch(imported), _switched(change):
                enter()
                yield
        except BaseException as error:
            if not isinstance(error, (SystemExit, GeneratorExit)):
                for tool, owner in owners.items():
                    if owner is scope:
                        tool.cut_short += (type(error).__name__,)
            raise
        finally:
            scope.open = False
            for tool, owner in owners.items():
                if owner is scope and os.getpid() == process:  # a forked one leaves that to it
                    leaving.callback(tool.on_exit)
    warn_of_unmatched((t for t, owner in owners.items() if owner is scope), scope, known_drivers())


def in_order(roots: Iterable[Tool], present: Sequence[Tool] = ()) -> list[Tool]:
    """List tools with all they depend on, each once, dependencies first.

    Args:
        roots: tools in the order in which they were applied.
        present: tools active already; they come first and serve as dependencies.

    Raises:
        DependencyCycleError: naming the tools along the cycle.
    """
    order: list[Tool] = list(present)
    path: list[Tool] = []
    shared: dict[type[Tool], Tool] = {}
    instances = [*present, *roots]
    for tool in instances:  # which grows by all that they depend on
        shared.setdefault(type(tool), tool)
        instances += (t for t in tool.direct_dependencies() if t not in instances)

    def visit(tool: Tool) -> None:
        if tool in path:
            cycle = [*path[path.index(tool) :], tool]
            raise DependencyCycleError([t.name for t in cycle])
        if tool in order:
            return
        path.append(tool)
        for dependency in tool.dependencies:
            if isinstance(dependency, type):
                if dependency not in shared:
                    shared[dependency] = dependency()
                tool._built[dependency] = shared[dependency]
        for known in tool.direct_dependencies():
            visit(known)
        path.pop()
        order.append(tool)

    for root in roots:
        visit(root)
    return order


def enabled() -> Block:
    """Have the active tools at work again within a ``disabled()`` block."""
    return Block(lambda: _switched(lambda state: replace(state, enabled=True)))


def disabled() -> Block:
    """Have no tool at work in this thread for a ``with`` block."""
    return Block(lambda: _switched(lambda state: replace(state, enabled=False)))


def is_enabled() -> bool:
    """Tell whether the active tools of this thread are at work."""
    return _thread.state.enabled


def cache_enabled() -> Block:
    """Keep what analysis routines decide, within a ``cache_disabled()`` block."""
    return Block(lambda: _switched(lambda state: replace(state, caching=True)))


def cache_disabled() -> Block:
    """Ask the analysis routines anew at every execution, for a ``with`` block."""
    return Block(lambda: _switched(lambda state: replace(state, caching=False)))


def is_cache_enabled() -> bool:
    """Tell whether what analysis routines decide is kept."""
    return _thread.state.caching


@contextlib.contextmanager
def _switched(change: Callable[[_State], _State]) -> Iterator[None]:
    in_routine_first(_set_aside)
    layer = _put_on(change)
    try:
        _refresh()
        yield
    finally:
        in_routine_first(_set_aside)  # it may leave a block that it has not entered
        _take_off(layer)
        _refresh()


def _put_on(change: Callable[[_State], _State]) -> _Layer:
    layer = _Layer(change, _thread.state)
    _thread.state = change(layer.before)
    _thread.layers.append(layer)
    return layer


def _set_aside() -> Callable[[], None]:
    """Have no tool active, and return what undoes that."""
    layer = _put_on(lambda state: _State((), Active(state.active.owners)))
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


def _refresh() -> None:
    """Tell the drivers what is active in this thread."""
    state = _thread.state
    drivers = loaded_drivers() if state.tools else known_drivers()
    for tool in state.tools:
        check_sees(tool, drivers)
    with contextlib.ExitStack() as telling:  # each of them is told, also if another one fails
        for driver in reversed(drivers):
            telling.callback(_activate, driver, state)


def _activate(driver: Driver, state: _State) -> None:
    try:
        driver.activate(state.engine(driver))
    except AmandaError:
        raise
    except Exception as error:
        leave_out(driver, error)
