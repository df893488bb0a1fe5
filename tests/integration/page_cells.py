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
    place = Path(page).parent

    def moved(link: re.Match[str]) -> str:
        return f"]({os.path.relpath(place / link[1], FOLDER)}{link[2]})"

    def add_text(text: str) -> None:
        if text.strip():
            found.append(Cell("markdown", RELATIVE.sub(moved, text.strip())))

    rest, end = pages.text(page), 0
    for block in pages.BLOCK.finditer(rest):
        language, source = block[1], block[2].rstrip("\n")
        if language in ("python", "sh") or (language in ("", "text") and found[-1].kind == "code"):
            add_text(rest[end : block.start()])
            end = block.end()
        if language == "python":
            file = pages.FILE.match(source)
            found.append(Cell("code", f"%%writefile {file[1]}\n{source}" if file else source))
        elif language == "sh":
            commands = "\n".join(f"{line} 2>&1" for line in source.splitlines())
            found.append(Cell("code", f"%%sh\n{commands}"))
        elif end == block.end():
            found[-1] = found[-1]._replace(shown=block[2], exact=not language)
    add_text(rest[end:])
    return found
