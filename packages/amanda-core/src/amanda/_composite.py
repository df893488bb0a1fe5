"""Composites: several operators of a backend that are one operator in another vocabulary.

A backend whose models are graphs may compute in many operators what a vocabulary has one for. A
context map finds those in the graph that a driver shows it; tools of that vocabulary then see the
one operator and none of its parts, and all others see the parts alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Place = tuple[str, int]
"""A tensor in a graph: the name of the operator that makes it, and which of its outputs."""


class Graph(Protocol):
    """The operators of a model in a graph, by name; gradients are no part of it."""

    def operators(self) -> Iterable[str]:
        """All of them, in a stable order."""

    def type(self, name: str) -> str | None:
        """The type of an operator, None for what is no operator of the model."""

    def inputs(self, name: str) -> Sequence[Place]:
        """The tensors that an operator takes."""

    def attrs(self, name: str) -> Mapping[str, Any]:
        """Its attributes as plain values."""

    def readers(self, place: Place) -> Iterable[str]:
        """The operators that take a tensor."""

    def tensor(self, place: Place) -> Any:
        """A tensor as the backend has it."""

    def constant(self, place: Place) -> Any:
        """The value of a tensor as an array, None where it is no constant."""


class Composite:
    """Operators of a graph that are one operator of a vocabulary.

    Args:
        type: what the context map calls it among the backend's types; no operator has that type.
        parts: the names of its operators, of which the last one gives the result.
        inputs: the tensors that it takes.
        input_names: their names.
        attrs: its attributes.
    """

    __slots__ = ("attrs", "input_names", "inputs", "parts", "type")

    def __init__(
        self,
        type: str,
        parts: Sequence[str],
        inputs: Sequence[Place],
        input_names: Sequence[str],
        attrs: Mapping[str, Any],
    ) -> None:
        self.type = type
        self.parts = tuple(parts)
        self.inputs = tuple(inputs)
        self.input_names = tuple(input_names)
        self.attrs = attrs
