"""What a shell may complete a word of the command line with; click makes the shells' scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

from amanda_tools.registry import named_tools

if TYPE_CHECKING:
    import click


def tool_names(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """The names of tools that begin like the word."""
    return [CompletionItem(name) for name in named_tools() if name.startswith(begun)]


def files(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """The names of files, which the shell itself finds."""
    return [CompletionItem(begun, type="file")]
