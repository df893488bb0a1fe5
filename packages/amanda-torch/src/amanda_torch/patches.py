"""Parts of PyTorch are patched while a scope is open in some thread, and put back afterwards.

Operators are intercepted at the dispatcher; these patches tell what the dispatcher cannot: which
module is running, when a backward runs, what an activation checkpoint recomputes, and calls of
custom autograd Functions, which are no operators for it.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch
from amanda import driving
from amanda.driving import in_routine
from torch.compiler import is_dynamo_compiling

from amanda_torch._internals import (
    BackwardCFunction,
    Ops,
    engine_run_backward,
    forward_ad,
    make_dual,
    make_grads,
    ops_module,
)
from amanda_torch.backward.nodes import warn_of_earlier
from amanda_torch.interception import module_calls
from amanda_torch.interception.autograd_functions import patches_of_functions
from amanda_torch.interception.checkpoints import patches_of_checkpoints
from amanda_torch.interception.transforms import patches_of_transforms
from amanda_torch.operators.higher_order import captured, captures, keyset
from amanda_torch.operators.wrapped import NumberWithoutValue
from amanda_torch.places import keras
from amanda_torch.thread import unseen, unwatched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from amanda_torch.places.identity import Identity

    Patch = tuple[Any, str, Any] | driving.OnImport

_torch_compile = torch.compile
_seen_backward = unseen(engine_run_backward)


@functools.wraps(engine_run_backward)
def _run_backward(outputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a backward; that of a routine is not instrumented, also on the program's graph."""
    if is_dynamo_compiling():
        return _seen_backward(outputs, *args, **kwargs)
    if in_routine():
        with unwatched():
            return _seen_backward(outputs, *args, **kwargs)
    warn_of_earlier(outputs)
    return _seen_backward(outputs, *args, **kwargs)


@functools.wraps(_torch_compile)
def _compile(*args: Any, **kwargs: Any) -> Any:
    if captures(sys._getframe(1)):
        return captured(_torch_compile, *args, **kwargs)
    return _torch_compile(*args, **kwargs)


class Patches(driving.Patches):
    """This changes PyTorch while any thread has active tools.

    Args:
        identity: knows which operators run.
        operators_changed: called when operators may have been added to the dispatcher.
        transforms_begin: called when a thread with tools enters a transform of ``torch.func`` or
            begins to compute tangents.
    """

    def __init__(
        self,
        identity: Identity,
        operators_changed: Callable[[], None],
        transforms_begin: Callable[[], None],
    ) -> None:
        def then_changed(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def changed(*args: Any, **kwargs: Any) -> Any:
                result = function(*args, **kwargs)
                operators_changed()
                return result

            return changed

        patches: list[Patch] = [
            *module_calls.patches_of_modules(identity),
            *module_calls.PATCHES,
            (torch.autograd, "_engine_run_backward", _run_backward),
            (torch.autograd, "_make_grads", unseen(make_grads)),
            (forward_ad, "make_dual", unseen(make_dual)),
            (BackwardCFunction, "apply_jvp", unseen(BackwardCFunction.apply_jvp)),
            (forward_ad, "unpack_dual", unseen(forward_ad.unpack_dual)),
            *patches_of_functions(identity),
            *patches_of_checkpoints(identity),
            *patches_of_transforms(transforms_begin),
            (torch.library.Library, "define", then_changed(torch.library.Library.define)),
            (Ops, "load_library", then_changed(Ops.load_library)),
            (ops_module, "_compute_keyset", keyset),
            (torch, "compile", _compile),
            (torch.Tensor, "_wrapped_number", NumberWithoutValue()),
            driving.OnImport("torch._dynamo", self._run_eagerly),
            *keras.PATCHES,
        ]
        super().__init__(lambda: patches)
        self._stance: Any = None

    def remove(self) -> None:
        """Restore what was there before."""
        super().remove()
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None

    def _run_eagerly(self, _: object) -> Iterable[tuple[Any, str, Any]]:
        """Have compiled models run as they are written, so that their operators are seen."""
        self._stance = torch.compiler.set_stance("force_eager")
        self._stance.__enter__()
        return ()
