"""Pages of documentation as notebooks: a cell for each snippet, and for the text between two."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import pages

FOLDER = "docs/notebooks"
NOTEBOOKS = {
    "ten-minutes": ["docs/tutorial.md"],
    "looking-into-a-language-model": ["docs/looking-into-a-language-model.md"],
    "prune-and-quantize": ["docs/how-to/prune-and-fine-tune.md", "docs/how-to/quantize.md"],
}
RELATIVE = re.compile(r"\]\((?!https?:)([^)#\s]+)((?:#[^)]*)?)\)")


class Cell(NamedTuple):
    """A cell of the notebook that a page is.

    Attributes:
        kind: ``markdown`` or ``code``.
        source: its text.
        shown: what the page says that it prints; None if it says nothing of it.
        exact: whether its numbers are those that are printed each time.
    """

    kind: str
    source: str
    shown: str | None = None
    exact: bool = False

    def prints(self, found: str) -> bool:
        """Whether this is what the page shows, if it shows something."""
        return self.shown is None or pages.Printed(found, self.shown, self.exact).as_shown()


def cells(name: str) -> list[Cell]:
    """A notebook, as its pages have it."""
    return [cell for page in NOTEBOOKS[name] for cell in _cells(page)]


def _cells(page: str) -> list[Cell]:
    found: list[Cell] = []
    whole, end, latest = pages.text(page), 0, None
    for block in pages.BLOCK.finditer(whole):
        language, source = block[1], block[2].rstrip("\n")
        is_code = language in ("python", "sh")
        if not is_code and (latest is None or language not in ("", "text")):
            continue  # it stays in the text
        found += _text(page, whole[end : block.start()])
        end = block.end()
        if is_code:
            latest = len(found)
            found.append(Cell("code", _source(language, source)))
        else:
            found[latest] = found[latest]._replace(shown=block[2], exact=not language)
    return found + _text(page, whole[end:])


def _source(language: str, source: str) -> str:
    """The text of a cell that does what a block does."""
    if language == "sh":
        return "\n".join(["%%sh", *(f"{line} 2>&1" for line in source.splitlines())])
    file = pages.FILE.match(source)
    return f"%%writefile {file[1]}\n{source}" if file else source


def _text(page: str, text: str) -> list[Cell]:
    """A cell of text, whose links lead from the notebook's folder; none if there is nothing."""

    def moved(link: re.Match[str]) -> str:
        return f"]({os.path.relpath(Path(page).parent / link[1], FOLDER)}{link[2]})"

    return [Cell("markdown", RELATIVE.sub(moved, text.strip()))] if text.strip() else []
