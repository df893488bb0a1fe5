"""Commands print on the standard output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from rich.console import Console

from amanda_tools.results import WIDE, without_trailing_blanks

if TYPE_CHECKING:
    from rich.console import RenderableType


def print_out(what: RenderableType, width: int | None = None) -> None:
    """Print on the standard output, in lines as long as need be unless it is a terminal."""
    console = Console(width=width)
    if console.is_terminal:
        console.print(what, soft_wrap=isinstance(what, str))
        return
    console = Console(width=width or WIDE)
    with console.capture() as captured:
        console.print(what, soft_wrap=isinstance(what, str))
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    shown = without_trailing_blanks(captured.get()).encode(encoding, "backslashreplace")
    click.echo(shown.decode(encoding), nl=False)
