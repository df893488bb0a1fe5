"""Keras on PyTorch names its layers, calls them on stand-ins, and reports errors in its own way."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import amanda
from amanda.driving import OnImport, tensors_in

from amanda_torch.thread import intercept, intercepting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    import torch

# Keras makes a RuntimeError of an error out of a layer, to say what the layer was called with, but
# for one that says so already.
amanda.AmandaError._keras_call_info_injected = True  # type: ignore[attr-defined]


def layer_name(module: torch.nn.Module) -> str | None:
    """Return the name of a Keras layer; None for any other module."""
    layer = getattr(sys.modules.get("keras"), "Layer", None)
    return module.name if layer is not None and isinstance(module, layer) else None


def parameters_of(model: torch.nn.Module) -> Iterator[Any]:
    """Iterate over the parameters of a model.

    Keras tells PyTorch of those that a layer gets after the model was built (``enable_lora``) only
    when the model is trained.
    """
    yield from model.parameters()
    if layer_name(model) is not None:
        layer: Any = model
        yield from (variable.value for variable in layer.variables)


def layer_scope(scope: str, name: str) -> str:
    """Return the scope of a layer that is called from a scope; Keras has a path of names."""
    return f"{scope}/{name}".lstrip("/")


def is_symbolic(args: Any) -> bool:
    """Tell whether a layer is called to add it to a model that is being built: on no tensors."""
    symbol = getattr(sys.modules.get("keras"), "KerasTensor", None)
    return symbol is not None and bool(tensors_in(args, lambda leaf: isinstance(leaf, symbol)))


def _tracebacks(module: Any) -> Iterator[tuple[Any, str, Any]]:
    name = "_process_traceback_frames"
    shorten = getattr(module, name, None)
    if shorten is not None and not hasattr(shorten, "__wrapped__"):  # by another driver
        yield module, name, _keeping_causes(shorten)


def _keeping_causes(
    shorten: Callable[[TracebackType | None], TracebackType | None],
) -> Callable[[TracebackType | None], TracebackType | None]:
    """Make what shortens an error's traceback raise it with its cause, which Keras would drop."""

    @functools.wraps(shorten)
    def shortened(traceback: TracebackType | None) -> TracebackType | None:
        error = sys.exc_info()[1]
        if isinstance(error, amanda.AmandaError):  # raised here, where its cause is not taken away
            raise error.with_traceback(shorten(traceback))
        return shorten(traceback)

    return shortened


def _stand_ins(module: Any) -> Iterator[tuple[Any, str, Any]]:
    """List the patches by which no tool sees what Keras runs on stand-ins to learn shapes."""
    scope = module.SymbolicScope
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


PATCHES = (
    OnImport("keras.src.backend.common.symbolic_scope", _stand_ins),
    OnImport("keras.src.utils.traceback_utils", _tracebacks),
)
"""What is replaced in Keras while tools are active, if the program uses it, early or late."""
