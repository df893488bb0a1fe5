"""Context maps: what translates a backend's vocabulary into another one, ahead of the tools.

A tool that speaks ``onnx`` runs unchanged on every backend whose vocabulary a map translates.
Maps announce themselves by an entry point in the group ``amanda.context_maps`` whose name is
``<backend's vocabulary>:<other vocabulary>``, e.g. ``torch:onnx``, and whose value is a
:class:`ContextMap`; they are loaded when a tool first needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from amanda._errors import MissingContextMapError
from amanda._installed import entry_points_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda._analysis import Analysis, Execution
    from amanda._composite import Composite, Graph
    from amanda._driver import Driver


class Layout(Protocol):
    """How a tensor is seen in another order of its axes.

    Both turn a tensor of the backend, by its array namespace, and both are differentiable.
    """

    def to_canonical(self, tensor: Any, xp: Any) -> Any:
        """The tensor as the vocabulary has it."""

    def to_native(self, tensor: Any, xp: Any) -> Any:
        """A tensor of the vocabulary as the backend has it."""


class Translation(Protocol):
    """What one operator is in another vocabulary."""

    @property
    def type(self) -> str:
        """Its type there; that of its backward operator has ``Grad`` behind it."""

    def analysis(self, native: Analysis) -> Analysis:
        """What a tool of that vocabulary is shown in place of an analysis.

        What it inserts there has to arrive as an insertion into ``native``.
        """


class ContextMap(Protocol):
    """Translates one backend's vocabulary into another one."""

    def native_types(self, types: frozenset[str]) -> frozenset[str] | None:
        """Types of the backend that may be one of ``types`` in this map's vocabulary.

        None when that cannot be said, and all operators must be looked at.
        """

    def types(self) -> frozenset[str]:
        """The types of this map's vocabulary that an operator of the backend may be.

        A map may lack this; nothing is then guessed of misspelt ones.
        """

    def translate(self, execution: Execution, driver: Driver) -> Translation:
        """What an execution is in this map's vocabulary.

        Args:
            execution: as the backend shows it, on its forward side.
            driver: the backend's driver, which tells parameters and known values.
        """

    def composites(self, graph: Graph, driver: Driver) -> Sequence[Composite]:
        """What is one operator here and several in a graph of the backend.

        No operator is a part of two. A map may lack this, and knows of none then.
        """


_maps: dict[tuple[str, str], ContextMap | str] = {}


def context_map(backend: str, vocabulary: str) -> ContextMap:
    """The map from a backend's vocabulary to another one.

    Raises:
        MissingContextMapError: none is installed, or it cannot be loaded.
    """
    key = backend, vocabulary
    if key not in _maps:
        _maps[key] = _found(backend, vocabulary)
    found = _maps[key]
    if isinstance(found, str):
        raise MissingContextMapError(found)
    return found


def _found(backend: str, vocabulary: str) -> ContextMap | str:
    """The map that a package announces, or why there is none."""
    name = f"{backend}:{vocabulary}"
    for entry in (e for e in entry_points_of("amanda.context_maps") if e.name == name):
        try:
            return entry.load()  # type: ignore[no-any-return]
        except Exception as error:
            return f"the context map {name} cannot be loaded: {type(error).__name__}: {error}"
    return (
        f"nothing here translates {backend!r} into {vocabulary!r}; python -m pip install "
        f"amanda-contextmap, or a package that announces the context map {name}"
    )
