"""Each thread carries the active tools, and where in the model it is.

Whether operators are seen is not kept here, as core's ``ActiveEngine`` does, but by the dispatcher:
a key that a thread includes, which the threads of a backward take over from the one that starts it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch.compiler import is_dynamo_compiling

from amanda_torch._internals import (
    dispatch_key_parse,
    is_key_excluded,
    is_key_included,
    set_key_excluded,
    set_key_included,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

    from amanda import AmandaError
    from amanda.driving import ByOperator, Engine

    from amanda_torch.frames import Way
    from amanda_torch.operators.signature import Args, Kwargs
    from amanda_torch.places.context import Context, Site

# A dispatch key that nothing else uses. While it is included in a thread, operators that have a
# kernel on it arrive there first; all others fall through at no cost.
KEY_NAME = "TESTING_ONLY_GenericMode"
KEY = dispatch_key_parse(KEY_NAME)


# A call of a module that is running: the module, the call around it, the frame that calls it, and
# the calling context, once an operator has asked for it. A list, since each call makes one.
Entered = list[Any]
CONTEXT = 3
"""Where in ``Entered`` the calling context is."""


@dataclass(slots=True, eq=False)
class ThreadState:
    """This holds the state of one thread.

    Attributes:
        around: what this thread was at when a routine opened a scope of its own; None outside
            of such scopes.
        engine: the tools that see the operators that run now, None for none.
        active: the active tools; inside an operator, not all of them see what runs.
        entered: the innermost call of a module, None outside of modules.
        visits: how often each site was passed within the outermost module call.
        session: gives what identifies the outermost scope that was entered last.
        outside: the calling context of operators outside of modules, as long as a scope is open.
        floor: the code that opened the outermost scope; call paths end there.
        resumed: the calling context of the checkpoint that is being recomputed.
        origin: the call sites that lead from there to the checkpoint.
        resuming: the arguments of the operator that is about to go on past our kernel.
        script_optimizes: whether TorchScript optimized what it runs before tools were active;
            None when none are.
        scripts: what was called of TorchScript since then.
        raised: errors of tools within the TorchScript that is running, which makes text of them;
            None where none is running.
        capturing: whether what runs once the function of an operator is captured is to be seen.
        derived: the operator that takes functions whose own gradient is being recorded, if any.
        overrides: what the program has of functions of modes and of classes of tensors, while the
            driver does without them; None while it does not.
        began: the number that the first autograd node would have had that was made in the scopes
            that are open; 0 where nothing is to be said of earlier ones.
        known: whether a scope was entered or a backward started in this thread: autograd's own
            threads do neither.
    """

    around: ThreadState | None = None
    engine: Engine | None = None
    active: Engine | None = None
    entered: Entered | None = None
    visits: dict[Site, int] | None = None
    session: Callable[[], ByOperator[Any] | None] = lambda: None
    outside: Context | None = None
    floor: CodeType | None = None
    resumed: Context | None = None
    origin: Way = ()
    resuming: tuple[Args, Kwargs] = field(default_factory=lambda: ((), {}))
    script_optimizes: bool | None = None
    scripts: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    raised: list[AmandaError] | None = None
    capturing: bool = False
    derived: str | None = None
    overrides: Any = None
    began: int = 0
    known: bool = False

    @property
    def owner(self) -> tuple[int, int]:
        """Return what tells apart the threads, and in each the scopes that routines open."""
        depth, around = 0, self.around
        while around is not None:
            depth, around = depth + 1, around.around
        return threading.get_ident(), depth


class _Local(threading.local):
    def __init__(self) -> None:
        self.thread = ThreadState()


local = _Local()


# Has operators of this thread arrive at our kernels, or not.
intercept: Callable[[bool], None] = functools.partial(set_key_included, KEY)


def intercepting() -> bool:
    """Tell whether operators of this thread arrive at our kernels."""
    return is_key_included(KEY)


# A key that nothing uses. To exclude it changes nothing, but marks the backward that runs then, in
# the threads that autograd has for it too, as one that tools see nothing of.
_MARK = dispatch_key_parse("DeferredInit")


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Open a block whose backward is none of the program's, but run by or for a routine."""
    before = is_unwatched()
    set_key_excluded(_MARK, True)
    try:
        yield
    finally:
        set_key_excluded(_MARK, before)


is_unwatched: Callable[[], bool] = functools.partial(is_key_excluded, _MARK)


def unseen(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of torch whose operators are none of the program's.

    The threads of a backward take over what is switched on here, and so they see nothing either.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return function(*args, **kwargs)
        thread = local.thread
        thread.known = True
        on = intercepting()
        intercept(False)
        try:
            return function(*args, **kwargs)
        finally:
            intercept(on and thread.engine is not None)  # a routine may leave a scope

    return run
