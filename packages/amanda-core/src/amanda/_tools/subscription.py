"""A tool subscribes to what runs: by an analysis routine, and what it is called for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from amanda._operators.points import View

if TYPE_CHECKING:
    from amanda._contexts.context import OpContext
    from amanda._tools.tool import Tool

Analyze: TypeAlias = "Callable[[OpContext], None]"


@dataclass(slots=True, eq=False)
class Subscription:
    """A subscription is an analysis routine and the operators that it wants.

    ``ops`` is None for all types, and ``scopes``, which are globs, for all scopes. Of modules these
    are their classes and paths; where there are none, one that is ``optional`` is left out.
    ``keep_forward`` has the forward tensors kept until what runs backward is analyzed.
    """

    tool: Tool
    callback: Analyze
    view: View
    ops: frozenset[str] | None
    scopes: frozenset[str] | None
    require_outputs: bool = False
    require_producers: bool = False
    opt_in: bool = False
    optional: bool = False
    keep_forward: bool = True

    def types(self, spelled: Callable[[str], str] = str) -> frozenset[str] | None:
        """Return the types that it selects, of those its tool is restricted to; None for all."""
        if self.view is View.MODULE:
            return self.ops
        chosen = [types for types in (self.ops, self.tool.restricted_to) if types is not None]
        sets = [frozenset(map(spelled, types)) for types in chosen]
        return frozenset.intersection(*sets) if sets else None
