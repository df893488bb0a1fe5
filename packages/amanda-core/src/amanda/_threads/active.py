"""These tools are active in a thread; what is seen to run under them is noted by scope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amanda._operators.operator import ByOperator

if TYPE_CHECKING:
    from amanda._contexts.context import OpContext
    from amanda._tools.tool import Tool


@dataclass(slots=True, eq=False)
class Scope:
    """A scope is one ``with amanda.apply(...)`` block; it is ``open`` until it is left.

    ``seen`` has the types of the operators that ran in it, by vocabulary, as far as engines saw
    them, and ``gradients`` those of backward ones. ``places`` has the scopes in the model where
    operators ran. If tools look at modules, ``paths`` and ``classes`` are those of the modules that
    were called.
    """

    open: bool = True
    seen: dict[str, set[str]] = field(default_factory=dict)
    gradients: dict[str, set[str]] = field(default_factory=dict)
    places: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Active:
    """These tools are active, with what their routines share.

    Attributes:
        owners: for each tool, the scope that made it active.
        scope: the innermost one.
        contexts: those of operators, shared by the engines of a scope and those within it.
    """

    owners: Mapping[Tool, Scope] = field(default_factory=dict)
    scope: Scope = field(default_factory=Scope)
    contexts: ByOperator[OpContext] = field(default_factory=ByOperator)
