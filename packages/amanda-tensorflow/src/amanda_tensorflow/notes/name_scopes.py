"""The program's name for a name scope is noted while graphs are built, and how it was opened.

TensorFlow makes the names of scopes unique by numbers: the layer ``hidden`` is in the scope
``hidden_1`` where the graph has a ``hidden`` already. Noted is by which name, and in which scope, a
scope was opened, and whether an optimizer opened it for its updates.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import TYPE_CHECKING, Any

from amanda_tensorflow.notes import notes_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

# Where a name scope is opened on behalf of others, and where by optimizers.
_ON_BEHALF_OF_OTHERS = (
    "contextlib",
    "amanda_tensorflow.",
    "tensorflow.python.framework.",
    "keras.src.backend.",
)
_OPTIMIZERS = ("keras.src.optimizers.", "tensorflow.python.training.")
_OF_GRADIENTS = re.compile(r"gradient_tape|gradients(_\d+)?|.*_grad")


def noting_scopes(name_scope: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Graph.name_scope`` to note by which name, and where, a scope is opened."""

    @functools.wraps(name_scope)
    def wrapped(self: Any, name: Any) -> Any:
        opening = name_scope(self, name)
        if not name or name.endswith("/"):  # none, or one that was opened before
            return opening
        return _Noting(self, name, opening)

    return wrapped


class _Noting:
    """This opens a name scope, and notes by which name that was.

    Programs open thousands of them, so this is no generator, which would take twice as long.
    """

    def __init__(self, graph: Any, name: str, opening: Any) -> None:
        self._graph = graph
        self._name = name
        self._opening = opening

    def __enter__(self) -> Any:
        outer = self._graph._name_stack
        scope = self._opening.__enter__()
        if scope:
            notes, opened = notes_of(self._graph), scope.rstrip("/")
            notes.scopes.setdefault(opened, (outer or "", self._name))
            if _opened_by_optimizer():
                notes.updates.add(opened)
        return scope

    def __exit__(self, *error: Any) -> Any:
        return self._opening.__exit__(*error)


def _opened_by_optimizer() -> bool:
    """Tell whether a name scope that is being opened is one for an optimizer's updates."""
    caller: FrameType | None = sys._getframe(2)
    while caller is not None:
        module = caller.f_globals.get("__name__", "")
        if not module.startswith(_ON_BEHALF_OF_OTHERS):
            return bool(module.startswith(_OPTIMIZERS))
        caller = caller.f_back
    return False


def declared_scope(graph: Any, scope: str) -> str:
    """Return a name scope as the program wrote it, without the numbers that make it unique."""
    parts: list[str] = []
    while scope:
        outer, name = _opened(graph, scope) or (scope.rpartition("/")[0], scope.rpartition("/")[2])
        parts.append(name)
        scope = outer
    return "/".join(reversed(parts))


def _opened(graph: Any, scope: str) -> tuple[str, str] | None:
    """Find where and by what name a scope was opened; a loop's body has those around the loop."""
    while graph is not None:
        if (found := notes_of(graph).scopes.get(scope)) is not None:
            return found
        graph = getattr(graph, "outer_graph", None)
    return None


def is_update(graph: Any, scope: str) -> bool:
    """Tell whether a name scope is within one that an optimizer opened."""
    updates = notes_of(graph).updates
    while scope and updates:
        if scope in updates:
            return True
        scope = scope.rpartition("/")[0]
    return False


def within(around: str, scope: str) -> str:
    """Return a scope of a function as one of the program, which calls the function in another."""
    if not around or f"{scope}/".startswith(f"{around}/"):
        return scope
    return f"{around}/{scope}" if scope else around


def without_gradients(scope: str) -> str:
    """Return a name scope within gradients as it is where the forward operators are."""
    return "/".join(part for part in scope.split("/") if not _OF_GRADIENTS.fullmatch(part))
