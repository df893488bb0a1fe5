"""A driver that has a model as a graph shows it so, and a map finds composites there.

A backend whose models are graphs may compute in many operators what ONNX has one for. Tools that
speak ONNX then see the one operator and none of its parts, and all others see the parts alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Place = tuple[str, int]
"""A tensor in a graph: the name of the operator that makes it, and which of its outputs."""


class Graph(Protocol):
    """A graph shows the operators of a model, by name; gradients are no part of it."""

    def operators(self) -> Iterable[str]:
        """List the names of all operators, in a stable order."""

    def type(self, name: str) -> str | None:
        """Return the type of an operator; None for what is no operator of the model."""

    def inputs(self, name: str) -> Sequence[Place]:
        """List the tensors that an operator takes."""

    def attrs(self, name: str) -> Mapping[str, Any]:
        """Return the attributes of an operator as plain values."""

    def readers(self, place: Place) -> Iterable[str]:
        """List the operators that take a tensor."""

    def tensor(self, place: Place) -> Any:
        """Return a tensor as the backend has it."""

    def constant(self, place: Place) -> Any:
        """Return the value of a tensor as an array; None where it is no constant."""
