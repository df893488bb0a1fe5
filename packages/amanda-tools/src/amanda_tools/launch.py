"""A program runs under tools as Python itself would run it without."""

from __future__ import annotations

import contextlib
import dis
import functools
import os
import signal
import sys
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import amanda
from amanda.driving import announced

from amanda_tools.interrupts import Terminated, terminable
from amanda_tools.notice import described, emit, refused, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from amanda_tools.target import Program


class Outcome(NamedTuple):
    """An outcome tells how a program ended.

    Attributes:
        code: its exit code.
        ended_by: the exception that ended it early, which has been shown.
        tools_failed: whether a tool could not do its part.
        forked: whether this is a process that the program forked.
        idle: whether the tools were shown nothing at all that ran.
    """

    code: int = 0
    ended_by: BaseException | None = None
    tools_failed: bool = False
    forked: bool = False
    idle: bool = False


class Attention:
    """Attention notes whether any analysis routine of some tools is called.

    Args:
        tools: those that are about to be made active.

    Attributes:
        idle: whether none was, though there are some.
    """

    def __init__(self, tools: Sequence[amanda.Tool]) -> None:
        subscriptions = [each for tool in tools for each in tool.subscriptions]
        self.idle = bool(subscriptions)
        for subscription in subscriptions:
            subscription.callback = self._noticed(subscription.callback)

    def _noticed(self, analyze: Callable[[amanda.OpContext], None]) -> Callable[..., None]:
        @functools.wraps(analyze)
        def noticed(ctx: amanda.OpContext) -> None:
            self.idle = False
            analyze(ctx)

        return noticed


def launch(program: Program, args: Sequence[str], tools: Sequence[amanda.Tool]) -> Outcome:
    """Run a program as ``__main__`` under ``tools``.

    An exception that ends it is shown as Python would show it, without the frames of Amanda.

    Raises:
        click.UsageError: the tools cannot be made active; nothing has run.
    """
    process = os.getpid()
    sys.argv[:] = [program.name, *args]
    scope = contextlib.ExitStack()
    attention = Attention(tools)
    with refused("the tools cannot be made active"):
        scope.enter_context(amanda.apply(*tools))
    ended_by: BaseException | None = None
    failed = False
    with terminable() as signals:
        try:
            program.execute()
        except BaseException as error:
            ended_by = error
            if not _is_exit(error):
                for tool in tools:
                    tool.cut_short += (how(error),)
        try:
            scope.close()
        except (KeyboardInterrupt, Terminated) as error:
            ended_by = ended_by or error
        except BaseException as error:
            failed = True
            say(f"a tool failed at the end: {described(error)}")
    if signals and not isinstance(ended_by, Terminated):  # which the program has caught
        ended_by = Terminated(signals[0])
    outcome = Outcome(0, None, failed, os.getpid() != process, attention.idle)
    if ended_by is None:
        return outcome
    if _is_exit(ended_by):
        return outcome._replace(code=_code(ended_by))
    show(ended_by)
    return outcome._replace(code=1, ended_by=ended_by)


def show(error: BaseException) -> None:
    """Show an error that ended the program as Python would, without frames of Amanda.

    One that a signal raised is not shown: without Amanda the program would have ended without it.
    """
    if isinstance(error, Terminated):
        return
    _trim(error)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException as failure:  # it may be the program's own
        _trim(failure)
        emit("Error in sys.excepthook:\n")
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        emit("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, error.__traceback__)


def how(ended_by: BaseException) -> str:
    """Return what ended a program early: the name of an exception or of a signal."""
    if isinstance(ended_by, Terminated):
        return signal.Signals(ended_by.signal).name
    return type(ended_by).__name__


def _is_exit(error: BaseException) -> TypeGuard[SystemExit]:
    """Tell whether it is the program's own way to end."""
    return isinstance(error, SystemExit) and not isinstance(error, Terminated)


def _trim(error: BaseException) -> None:
    for part in _chain(error):
        part.__traceback__ = _of_program(part)


def _code(exit: SystemExit) -> int:
    """Return the exit code that Python makes of the exception; what is no number is shown."""
    if exit.code is None or isinstance(exit.code, int):
        return exit.code or 0
    with contextlib.suppress(Exception):
        if sys.stderr is not None:
            print(exit.code, file=sys.stderr)
    return 1


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Give an error, and all that is shown with it: causes, and members of groups."""
    known: set[int] = set()
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if id(error) in known:
            continue
        known.add(id(error))
        yield error
        members = getattr(error, "exceptions", ())
        others = [error.__cause__, error.__context__]
        others += members if isinstance(members, tuple) else ()
        waiting += (other for other in others if isinstance(other, BaseException))


def _of_program(error: BaseException) -> TracebackType | None:
    """Return an error's traceback from the program's own frame on, without frames of ours.

    Those of an error of a tool stay, and those of an error that is our own fault.
    """
    frames = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    while frames and _is_ours(frames[0]):
        del frames[0]
    if frames and not isinstance(error, amanda.AmandaError):
        fault = _is_ours(frames[-1]) and not _calls(frames[-1]) and isinstance(error, Exception)
        frames = [frame for frame in frames if fault or not _is_ours(frame)]
    if not frames:
        return None
    for frame, following in zip(frames, [*frames[1:], None], strict=True):
        frame.tb_next = following
    return frames[0]


def _is_ours(traceback: TracebackType) -> bool:
    name = traceback.tb_frame.f_globals.get("__name__", "")
    return str(name).partition(".")[0] in _our_packages()


@functools.cache
def _our_packages() -> frozenset[str]:
    """List packages whose frames a traceback of the program leaves out, drivers among them."""
    drivers = {driver.module.partition(".")[0] for driver in announced()}
    return frozenset({"amanda", "amanda_contextmap", "amanda_tools", "runpy", *drivers})


def _calls(traceback: TracebackType) -> bool:
    """Tell whether the last frame was calling what is not Python, as the operator itself is."""
    code = dis.get_instructions(traceback.tb_frame.f_code)
    name = next(step.opname for step in code if step.offset == traceback.tb_lasti)
    return name.startswith("CALL")
