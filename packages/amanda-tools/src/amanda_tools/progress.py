"""Long work shows how far it is: a bar on a terminal or in a notebook, and nothing elsewhere."""

from __future__ import annotations

import contextlib
import html
import importlib
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress

from amanda_tools.notice import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_QUICK = 0.5  # seconds; what takes less shows nothing
_REDRAWN = 0.1  # seconds from one time to the next


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Show on the standard error how many of ``total`` steps of a ``with`` block are done.

    The block is given what it is to call after each step. The bar goes when the block ends. It
    draws in that call alone: no thread runs, and the program's streams stay what they are.
    """
    bar: _Terminal | _Notebook | None = None
    done, due = 0, time.monotonic() + _QUICK

    def step() -> None:
        nonlocal bar, done, due
        done += 1
        if time.monotonic() < due:
            return
        with contextlib.suppress(Exception):  # work does not fail because nobody can see it
            bar = bar or _bar(what, total)
            if bar is not None:
                bar.draw(done)
        due = time.monotonic() + _REDRAWN

    try:
        yield step
    finally:
        if bar is not None:
            with contextlib.suppress(Exception):
                bar.remove()


def _bar(what: str, total: int) -> _Terminal | _Notebook | None:
    """Make a bar for where the program runs; None where nobody looks."""
    if Console().is_jupyter:
        return _Notebook(what, total)
    return _Terminal(what, total) if on_terminal() else None


class _Terminal:
    """This bar is in the last line of the terminal."""

    def __init__(self, what: str, total: int) -> None:
        self._progress = Progress(
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task(what, total=total)
        self._progress.start()

    def draw(self, done: int) -> None:
        self._progress.update(self._task, completed=done, refresh=True)

    def remove(self) -> None:
        self._progress.stop()


class _Notebook:
    """This bar is below the cell that runs; rich's own needs ipywidgets, which few have."""

    def __init__(self, what: str, total: int) -> None:
        self._shown = importlib.import_module("IPython.display")
        self._what, self._total = what, total
        self._handle: Any = self._shown.display(self._shown.HTML(""), display_id=True)

    def draw(self, done: int) -> None:
        label = html.escape(f"{self._what} {done:,} of {self._total:,}")
        bar = f'<progress value="{done}" max="{self._total}" aria-label="{label}"></progress>'
        self._handle.update(self._shown.HTML(f"{bar} {label}"))

    def remove(self) -> None:
        self._handle.update(self._shown.HTML(""))
