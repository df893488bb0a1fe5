"""A report on a run goes to a file."""

from __future__ import annotations

import platform
import shlex
import time
from importlib import metadata
from typing import TYPE_CHECKING

from amanda.driving import known_drivers

from amanda_tools.document import Document
from amanda_tools.executions import Executions
from amanda_tools.formats import ending_of
from amanda_tools.html_report.contents import Contents
from amanda_tools.html_report.page import packages_or_refused, page_of
from amanda_tools.html_report.timeline import Recorder
from amanda_tools.results import Results

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import amanda

    from amanda_tools.results import Contribution

_ENDINGS = (".html", ".htm")
# What is there until there is a report, and stays if none is ever written.
_NOTHING = (
    "<!doctype html><title>amanda</title><p>This report was begun, and has not been written.\n"
)


class PageFile(Document):
    """This file gets a report on a run when it has ended.

    Args:
        path: the file.
        command: what runs, a script and its arguments.

    Raises:
        ModuleNotFoundError: a package that it needs is not installed.
        OSError: it cannot be written there.
        ValueError: its name does not end in ``.html`` or ``.htm``.
    """

    def __init__(self, path: str | os.PathLike[str], command: Sequence[str] = ()) -> None:
        packages_or_refused()
        ending_of(path, _ENDINGS)
        super().__init__(path, _NOTHING)
        self._command = command
        self._recorder: Recorder | None = None

    def recorder_for(self, tools: Sequence[amanda.Tool]) -> Recorder | None:
        """Return what records the executions, if some tool measures them anyway."""
        if any(isinstance(tool, Executions) for tool in tools):
            self._recorder = Recorder()
        return self._recorder

    def write_run(self, contributions: Sequence[Contribution]) -> None:
        """Write what tools found in the run."""
        contents = Contents(shlex.join(self._command), _facts(), reads_code=True)
        if self._recorder is not None:
            contents.timelines.append(self._recorder.timeline)
        contents.add(contributions)
        self.write(page_of(contents))


def write_page(path: str | os.PathLike[str], contents: Contents) -> None:
    """Write a report on what is there already.

    Raises:
        ModuleNotFoundError: a package that it needs is not installed.
        OSError: the file cannot be written.
        ValueError: its name does not end in ``.html`` or ``.htm``.
    """
    file = PageFile(path)
    page = page_of(contents)
    file.open()
    file.write(page)


def write_report(path: str | os.PathLike[str], *tools: amanda.Tool, title: str = "") -> None:
    """Write what tools have found as an HTML report, as ``amanda run --report`` does.

    Executions of these tools are past by now, so that there is no timeline; a trace has one.

    Args:
        path: the file, which has to end in ``.html`` or ``.htm``.
        tools: the tools, in the order in which the report has them.
        title: what ran.

    Raises:
        ModuleNotFoundError: a package that it needs is not installed.
        OSError: the file cannot be written.
        ValueError: its name ends in something else.
    """
    results = Results(silent=True)
    results.show(tools, 0)
    contents = Contents(title or ", ".join(tool.name for tool in tools), _facts(), reads_code=True)
    contents.add(results.contributions)
    write_page(path, contents)


def _facts() -> list[tuple[str, str]]:
    """Tell when it was written, and on which versions it ran."""
    facts = [("Written", time.strftime("%Y-%m-%d %H:%M"))]
    for name in (*(driver.backend for driver in known_drivers()), "amanda-tools"):
        try:
            facts.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:  # its package has another name
            continue
    return [*facts, ("Python", platform.python_version())]
