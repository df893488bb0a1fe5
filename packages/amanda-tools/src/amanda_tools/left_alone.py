"""What a tool leaves alone unasked is said in a warning."""

from __future__ import annotations

import warnings

import amanda

_NAMED = 5  # operators; of others there is the number


class LeftAlone:
    """This notes the operators that a tool leaves alone unasked, and warns of them once.

    Args:
        tool: the tool.
        why: the reason, and a way out.
    """

    def __init__(self, tool: amanda.Tool, why: str) -> None:
        self._tool = tool
        self._why = why
        self._found: dict[str, None] = {}
        self._told = False

    def note(self, ctx: amanda.OpContext) -> None:
        """Take note of the operator under analysis."""
        self._found[ctx.op.id] = None

    def warn(self) -> None:
        """Warn of them, once for the tool."""
        if self._told or not self._found:
            return
        self._told = True
        names = list(self._found)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        warnings.warn(
            f"{self._tool.name} leaves alone {', '.join(names[:_NAMED])}{more}: {self._why}",
            amanda.AmandaWarning,
            stacklevel=3,
        )
