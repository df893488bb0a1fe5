"""Scopes say which tools are active in a thread."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Sequence

from amanda._contexts.context import OpContext
from amanda._drivers.discovery import framework_watch, known_drivers
from amanda._drivers.driver import Driver
from amanda._drivers.vocabulary import is_understood
from amanda._errors import DependencyCycleError
from amanda._operators.operator import ByOperator
from amanda._operators.points import View
from amanda._plans.engine import Engine
from amanda._scopes.unmatched import warn_of_unmatched
from amanda._threads.active import Active, Scope, State, refresh, switched
from amanda._threads.block import Block
from amanda._tools.tool import Tool


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
    own: list[Tool] = []  # those that it makes active, which no scope around it does

    def change(before: State) -> State:
        order = in_order(tools, before.tools)
        owners = {tool: before.active.owners.get(tool, scope) for tool in order}
        own[:] = [tool for tool in order if owners[tool] is scope]
        active = Active(owners, scope, before.active.contexts if before.tools else contexts)
        engine_of = functools.cache(lambda driver: _engine(driver, order, active))
        return State(tuple(order), active, engine_of, before.enabled, before.caching)

    entered: set[Driver] = set()

    def enter() -> None:
        for driver in [known for known in known_drivers() if known not in entered]:
            entered.add(driver)
            for tool in own:
                tool.on_enter(driver)

    def imported() -> None:
        refresh()
        enter()

    with contextlib.ExitStack() as leaving:  # every tool's turn comes, also if one fails
        try:
            with framework_watch(imported), switched(change):
                enter()
                yield
        except BaseException as error:
            if not isinstance(error, (SystemExit, GeneratorExit)):
                for tool in own:
                    tool.cut_short += (type(error).__name__,)
            raise
        finally:
            scope.open = False
            for tool in own if os.getpid() == process else ():  # a forked one leaves that to it
                leaving.callback(tool.on_exit)
    warn_of_unmatched(own, scope, known_drivers())


def _engine(driver: Driver, tools: Iterable[Tool], active: Active) -> Engine | None:
    """Make the engine for a driver; None if none of the tools looks at anything there."""
    every = (s for tool in tools if is_understood(tool, driver) for s in tool.subscriptions)
    seen = [s for s in every if s.view is not View.MODULE or driver.has_modules]
    return Engine(driver, seen, active) if seen else None


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
