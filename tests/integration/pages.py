"""Pages of documentation as programs: their snippets, and what these are said to print.

A snippet of Python that begins with a comment that is a file's name (``# train.py``) is that file,
which is written and not run; a block of ``sh`` has commands, one a line. What is printed stands in
a block without a language behind these, or in one of ``text``, whose numbers are those of the day.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import io
import math
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any, NamedTuple

from amanda.driving import Ids
from amanda_tools.command import main
from amanda_torch.driver import driver as torch_driver

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d+\.\d+")
# Commands as their modules, since sessions that share a framework do not have its scripts.
PROGRAMS = {"torchrun": [sys.executable, "-m", "torch.distributed.run"]}
FILE = re.compile(r"# (\w+\.py)\n")
VARIES = re.compile(r"\S+/\S+|-?\d[\d.,]*%?( [kMGTµnm]?i?[sB]?\b)?|─+")


class Printed(NamedTuple):
    """What a snippet printed, and what the page says that it prints."""

    found: str
    shown: str
    exact: bool

    def as_shown(self) -> bool:
        return (alike if self.exact else resembles)(self.found, self.shown)


def every() -> list[str]:
    """All pages, named from the root on."""
    patterns = (
        "*.md",
        "docs/**/*.md",
        "packages/*/*.md",
        "packages/*/docs/*.md",
        "benchmarks/*.md",
    )
    paths = (path for pattern in patterns for path in ROOT.glob(pattern))
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


def text(page: str) -> str:
    """A page, which is named from the root on."""
    return (ROOT / page).read_text("utf-8")


def blocks(page: str) -> list[tuple[str, str]]:
    """The language and the text of each block of a page."""
    return BLOCK.findall(text(page))


def program(page: str) -> str:
    """The Python of a page as one program."""
    return "\n\n".join(block for language, block in blocks(page) if language == "python")


def execute(page: str, without: str | None = None) -> tuple[dict[str, Any], list[Printed]]:
    """Run the Python of a page, snippet after snippet.

    Args:
        page: named from the root on.
        without: a word that what is left out has in it.

    Returns:
        What the names of the program stand for, and what was printed with what the page says is,
        for each block without a language, or of text, that follows one that runs.
    """
    torch_driver.identity.contexts.numbering.operators = Ids()  # models of other pages may live
    _import_for(page)
    names: dict[str, Any] = {"__name__": Path(page).stem}
    printed: list[Printed] = []
    output = io.StringIO()
    for language, block in blocks(page):
        if without is not None and without in block:
            continue
        gc.collect()  # models of blocks before may hold the ids that this one names
        file = FILE.match(block)
        if language == "python" and file:
            Path(file[1]).write_text(block, "utf-8")
        elif language == "python":
            with contextlib.redirect_stdout(output := io.StringIO()):
                exec(compile(block, page, "exec"), names)
        elif language == "sh":
            with contextlib.redirect_stdout(output := io.StringIO()):
                for line in block.splitlines():
                    command(*shlex.split(line))
        elif language in ("", "text"):
            found = output.getvalue().replace(f"{os.getcwd()}/", "")
            printed.append(Printed(found, block, exact=not language))
    return names, printed


def _import_for(page: str) -> None:
    """Import what a page does ahead of it, and have the garbage collector pass over that.

    It is asked for after every block, and would walk the million objects of a library each time.
    """
    for node in ast.walk(ast.parse(program(page))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            with contextlib.suppress(ImportError):  # of a file that the page writes
                exec(compile(ast.Module([node], []), page, "exec"), {})
    gc.collect()
    gc.freeze()


def command(*arguments: str) -> None:
    """Run a command; one of Amanda's as if in a process of its own, faster.

    What it writes on the standard error, as its tables, goes to the standard output.
    """
    if arguments[0] != "amanda":
        words = [*PROGRAMS.get(arguments[0], arguments[:1]), *arguments[1:]]
        done = subprocess.run(words, stdout=PIPE, stderr=STDOUT, text=True, check=False)
        print(done.stdout)
        assert not done.returncode, done.stdout
        return
    numbering = torch_driver.identity.contexts.numbering
    kept = sys.argv, sys.path[:], sys.modules["__main__"], numbering.operators
    sys.argv = list(arguments)
    numbering.operators = Ids()  # the models of the page have names beside those of the program
    try:
        with contextlib.redirect_stderr(sys.stdout), contextlib.suppress(SystemExit):
            main()
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"], numbering.operators = kept


def alike(printed: str, shown: str) -> bool:
    """Whether texts have the same words, and numbers with a fraction up to their last digit."""
    words = NUMBER.sub("#", printed).split() == NUMBER.sub("#", shown).split()
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=False)
    return words and all(
        math.isclose(float(a), float(b), abs_tol=1.5 * 10.0 ** -len(b.partition(".")[2]))
        for a, b in pairs
    )


def resembles(printed: str, shown: str) -> bool:
    """Whether texts have the same lines but for numbers, in any order, as rows are by time.

    Which operators are the slowest is another thing of the day, and so their ids are left out.
    Where a line that is shown is ``...``, there may be more of them.
    """
    lines, wanted = Counter(_without_numbers(printed)), Counter(_without_numbers(shown))
    left_out = wanted.pop("...", 0)
    return wanted <= lines if left_out else wanted == lines


def _without_numbers(text: str) -> list[str]:
    """The words of each line that has some."""
    lines = (" ".join(VARIES.sub("#", line).split()) for line in text.splitlines())
    return [line for line in lines if line.strip("# ")]
