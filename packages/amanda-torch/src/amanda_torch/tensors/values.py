"""Tensors are read as NumPy arrays, also within transforms of ``torch.func``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from amanda import ValueUnavailableError
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from amanda_torch._internals import (
    current_level,
    is_batched,
    is_functional,
    is_hidden_batch,
    is_wrapped,
    sync,
    unwrapped,
)
from amanda_torch.operators.wrapped import outside_of_transforms
from amanda_torch.thread import intercept, intercepting
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from torch import Tensor

# The types of elements that NumPy lacks, and those of its own that have all their values.
_LACKING = {torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
_LACKING |= {
    dtype: torch.float32
    for name, dtype in vars(torch).items()
    if name.startswith("float8") and isinstance(dtype, torch.dtype)
}


def value(tensor: Tensor) -> Any:
    """Return what a tensor holds now, as a NumPy array; types that NumPy lacks as larger ones.

    Raises:
        ValueUnavailableError: it has no value of its own, or none that NumPy can hold.
    """
    if is_hidden_batch(tensor):
        raise ValueUnavailableError(
            "it is one of a batch of gradients (is_grads_batched=True, vectorize=True), which has "
            "no value of its own; compute with it by ctx.xp, or have the program take the "
            "gradients one after the other"
        )
    if current_level() is None:
        return _array(tensor)
    beneath = _beneath(tensor)
    with outside_of_transforms():  # which would wrap each result
        return _array(beneath)


def _beneath(tensor: Tensor) -> Tensor:
    """Return the tensor that transforms have wrapped."""
    while is_wrapped(tensor):
        if is_batched(tensor):
            raise ValueUnavailableError(
                "it is one of a batch under vmap, which computes all of them at once and gives "
                "none a value of its own; compute with it by ctx.xp, or run the model without "
                "vmap: on the whole batch, or on one sample after the other"
            )
        if is_functional(tensor):
            sync(tensor)  # with what was written to its views
        tensor = unwrapped(tensor)
    return tensor


def _array(tensor: Tensor) -> Any:
    """Read a tensor, which no tool sees."""
    on = intercepting()
    intercept(False)
    try:
        return _read(tensor)
    finally:
        intercept(on)


def _read(tensor: Tensor) -> Any:
    tensor = tensor.detach()
    try:
        if tensor.dtype in _LACKING:
            tensor = tensor.to(_LACKING[tensor.dtype])
        tensor = tensor.resolve_conj().resolve_neg().cpu()
        with unshown():  # memory that NumPy is given can never be resized again, as FSDP does
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        return tensor.numpy()
    except (RuntimeError, TypeError, NotImplementedError) as error:  # meta, sparse
        if tensor.is_nested or is_traceable_wrapper_subclass(tensor):
            what = "nested tensor" if tensor.is_nested else type(tensor).__name__
            raise ValueUnavailableError(
                f"it is a {what}, which stands for other tensors (of several sizes, shards, "
                "quantized weights); compute with it in a routine, or run the model without them"
            ) from error
        raise ValueUnavailableError(f"NumPy cannot hold it: {error}") from error
