"""Ways to run a program under tools, on any framework."""

from __future__ import annotations

import contextlib
import tempfile
from typing import TYPE_CHECKING

import amanda
from amanda_tools import Trace

from benchmarks.measuring import around

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measuring import Way


def under(tool: Callable[[], amanda.Tool]) -> Way:
    """The way under a tool, which is made anew for each turn."""
    return around(lambda: amanda.apply(tool()))


def traced() -> Way:
    """The way under the tool ``trace``, into a file that is deleted."""

    @contextlib.contextmanager
    def block() -> Iterator[None]:
        with tempfile.TemporaryDirectory() as folder, amanda.apply(Trace(f"{folder}/trace.jsonl")):
            yield

    return around(block)
