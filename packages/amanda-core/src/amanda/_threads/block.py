"""A block is entered by ``with``, and left in the thread that entered it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

from amanda._errors import AmandaError
from amanda._threads.routine import runs_later

LEFT_ELSEWHERE = (
    "a block of Amanda's is left in another thread than it was entered in, where it stays active; "
    "leave it in the thread that entered it"
)
LEFT_ALREADY = "a block of Amanda's is left that is not entered"

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])


class Block(contextlib.ContextDecorator):
    """A block may be entered as often as one likes, also within itself, and in several threads.

    Args:
        enters: makes what is entered, anew for each time.
    """

    def __init__(self, enters: Callable[[], AbstractContextManager[None]]) -> None:
        self._enters = enters
        self._entered: list[tuple[int, AbstractContextManager[None]]] = []  # by which thread

    def __enter__(self) -> None:
        entered = self._enters()
        entered.__enter__()
        self._entered.append((threading.get_ident(), entered))

    def __exit__(
        self,
        type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        thread = threading.get_ident()
        mine = [i for i, (enterer, _) in enumerate(self._entered) if enterer == thread]
        if not mine:
            raise AmandaError(LEFT_ELSEWHERE if self._entered else LEFT_ALREADY)
        _, entered = self._entered.pop(mine[-1])
        return entered.__exit__(type, error, traceback)

    def __call__(self, function: _FunctionT) -> _FunctionT:
        """Return the function with a block around each of its calls.

        Raises:
            TypeError: most of its code runs after the call.
        """
        if runs_later(function):
            name = getattr(function, "__qualname__", function)
            raise TypeError(
                f"a block of Amanda's cannot decorate {name}, whose code runs after it was "
                "called; write a with statement in it"
            )
        return super().__call__(function)
