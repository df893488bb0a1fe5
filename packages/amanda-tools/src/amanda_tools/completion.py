"""Words of the command line are completed in a shell by scripts that click makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

from amanda_tools.registry import named_tools

if TYPE_CHECKING:
    import click


def tool_names(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """List the names of tools that begin like the word."""
    return [CompletionItem(name) for name in named_tools() if name.startswith(begun)]


def files(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Leave it to the shell to find names of files."""
    return [CompletionItem(begun, type="file")]
