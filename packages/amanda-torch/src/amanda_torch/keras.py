"""Keras on PyTorch: what its layers are called, and where it runs no operators of the program's."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from amanda_torch.thread import intercept, intercepting

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


def layer_name(module: torch.nn.Module) -> str | None:
    """The name of a Keras layer; None for any other module."""
    layer = getattr(sys.modules.get("keras"), "Layer", None)
    return module.name if layer is not None and isinstance(module, layer) else None


def layer_scope(scope: str, name: str) -> str:
    """The scope of a layer that is called from a scope: Keras knows it by the path of names."""
    return f"{scope}/{name}".lstrip("/")


def patches_of_keras() -> Iterator[tuple[Any, str, Any]]:
    """Keras runs a model on stand-ins to learn its shapes: no operators of the program's."""
    scope = getattr(sys.modules.get("keras"), "SymbolicScope", None)
    if scope is None:
        return
    enter, leave = scope.__enter__, scope.__exit__

    def entered(self: Any) -> Any:
        self.intercepting = intercepting()
        intercept(False)
        return enter(self)

    def left(self: Any, *raised: Any) -> None:
        leave(self, *raised)
        intercept(self.intercepting)

    yield scope, "__enter__", entered
    yield scope, "__exit__", left
