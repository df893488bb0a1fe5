"""Pages of documentation as programs: their snippets, and what these are said to print."""

from __future__ import annotations

import contextlib
import gc
import io
import math
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d+\.\d+")


def text(page: str) -> str:
    """A page, which is named from the root on."""
    return (ROOT / page).read_text("utf-8")


def blocks(page: str) -> list[tuple[str, str]]:
    """The language and the text of each block of a page."""
    return BLOCK.findall(text(page))


def program(page: str) -> str:
    """The Python of a page as one program."""
    return "\n\n".join(block for language, block in blocks(page) if language == "python")


def execute(page: str, without: str | None = None) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Run the Python of a page, snippet after snippet.

    Args:
        page: named from the root on.
        without: a word that what is left out has in it.

    Returns:
        What the names of the program stand for, and what was printed with what the page says is,
        for each block without a language that follows one of Python.
    """
    gc.collect()  # models of pages before may hold the ids that this one names
    names: dict[str, Any] = {"__name__": Path(page).stem}
    printed: list[tuple[str, str]] = []
    output = io.StringIO()
    for language, block in blocks(page):
        if without is not None and without in block:
            continue
        if language == "python":
            with contextlib.redirect_stdout(output := io.StringIO()):
                exec(compile(block, page, "exec"), names)
        elif not language:
            printed.append((output.getvalue(), block))
    return names, printed


def alike(printed: str, shown: str) -> bool:
    """Whether texts have the same words, and numbers with a fraction up to their last digit."""
    words = NUMBER.sub("#", printed).split() == NUMBER.sub("#", shown).split()
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=False)
    return words and all(
        math.isclose(float(a), float(b), abs_tol=1.5 * 10.0 ** -len(b.partition(".")[2]))
        for a, b in pairs
    )
