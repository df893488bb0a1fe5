"""Tools are told here what PyTorch knows of a tensor or a device."""

from __future__ import annotations

import functools

import torch
from amanda.driving import TensorInfo
from torch import Tensor

from amanda_torch._internals import current_level, mkldnn
from amanda_torch.tensors.batches import innermost, layers

_DENSE = frozenset((torch.strided, mkldnn))
# Types whose strided tensors are told by shape, dtype and device alone, once for all that share
# them: tools ask about every tensor of every execution.
_PLAIN = frozenset((Tensor, torch.nn.Parameter))
_KNOWN = 4096


def describe(tensor: Tensor) -> TensorInfo:
    """Tell shape, dtype, size and device of a tensor."""
    dense = type(tensor) in _PLAIN and tensor.layout is torch.strided and not tensor.is_nested
    if dense and current_level() is None:
        return _plain(tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad)
    is_dense = tensor.layout in _DENSE and not tensor.is_nested
    return TensorInfo(
        _shape(tensor),
        _dtype_name(tensor.dtype),
        _nbytes(innermost(tensor)),
        _device_name(tensor.device),
        is_dense,
        tensor.requires_grad,
        tuple((layer.level, layer.size) for layer in layers(tensor, below_autograd=True)),
    )


@functools.lru_cache(_KNOWN)
def _plain(
    shape: torch.Size, dtype: torch.dtype, device: torch.device, requires_grad: bool
) -> TensorInfo:
    nbytes = shape.numel() * dtype.itemsize
    return TensorInfo(
        tuple(shape),
        _dtype_name(dtype),
        nbytes,
        _device_name(device),
        requires_grad=requires_grad,
    )


def _shape(tensor: Tensor) -> tuple[int | None, ...] | None:
    if torch.nn.parameter.is_lazy(tensor):
        return None
    if tensor.is_nested and tensor.layout is torch.strided:  # it does not tell any size
        return (None,) * tensor.dim()
    return tuple([size if isinstance(size, int) else None for size in tensor.shape])


def _nbytes(stored: Tensor) -> int | None:
    """Return the size of the elements, for sparse tensors of those that are not zero."""
    if stored.is_sparse:
        stored = stored._values()
    elif stored.layout not in _DENSE and not stored.is_nested:  # compressed by rows or columns
        stored = stored.values()
    return stored.nbytes if isinstance(stored.nbytes, int) else None


@functools.cache
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@functools.cache
def _device_name(device: torch.device) -> str:
    return str(device)


@functools.cache
def _is_accelerator(device: str) -> bool:
    """Tell whether a device runs beside the host."""
    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and accelerator.type == torch.device(device).type


def synchronize(device: str) -> None:
    """Wait until an accelerator has done all that it was given."""
    if _is_accelerator(device):
        torch.accelerator.synchronize(device)


def allocated(device: str) -> int | None:
    """Count the bytes of an accelerator's memory in use by tensors; None where nobody tells."""
    if not _is_accelerator(device):
        return None
    of_device = torch.get_device_module(device)
    if hasattr(of_device, "memory_allocated"):
        return int(of_device.memory_allocated(device))
    if hasattr(of_device, "current_allocated_memory"):  # there is one device of this kind
        return int(of_device.current_allocated_memory())
    return None
