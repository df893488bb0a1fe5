"""Tensors that stand for others while a program is traced; operators on them are left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEYS = torch._C._TorchDispatchModeKey
_TRACERS = (_KEYS.FAKE, _KEYS.PROXY, _KEYS.FUNCTIONAL)
_modes = torch._C._len_torch_dispatch_stack
_mode = torch._C._get_dispatch_mode
_jit_traces = torch._C._is_tracing
_plain: dict[type, bool] = {torch.Tensor: True, torch.nn.Parameter: True}


def opaque(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether an execution is part of tracing (fake tensors, ``torch.export``, ``jit.trace``)."""
    for tensor in tensors:
        cls = type(tensor)
        plain = _plain.get(cls)
        if plain is None:
            plain = _plain[cls] = not _is_tracer(cls)
        if not plain:
            return True
    return _jit_traces() or (_modes() > 0 and any(_mode(key) is not None for key in _TRACERS))


def _is_tracer(cls: type) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    return issubclass(cls, (FakeTensor, FunctionalTensor))
