"""Users add operators of their own to the maps here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import amanda
from amanda.driving import context_map

from amanda_contextmap.onnx_map import OnnxMap

if TYPE_CHECKING:
    from amanda_contextmap.rule import Rule


def register(backend: str, type: str, *rules: Rule) -> None:
    """Say what a native operator is in the vocabulary of ONNX, in place of what was said before.

    It holds for scopes that are opened afterwards::

        register("torch", "mylib::swish", rule("Swish", "X=input", alpha="beta"))

    Args:
        backend: the backend's vocabulary, ``torch`` or ``tensorflow``.
        type: the operator's native type.
        *rules: the first that holds tells what an operator is; with none it keeps its own name.

    Raises:
        MissingContextMapError: the backend has no map.
        UnsupportedError: its map comes from elsewhere, and takes no rules.
    """
    found = context_map(backend, "onnx")
    if not isinstance(found, OnnxMap):
        raise amanda.UnsupportedError(f"the map {backend}:onnx is not one of amanda-contextmap")
    found.rules[type] = rules
