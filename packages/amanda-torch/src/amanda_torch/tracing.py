"""Operators on tensors that stand for others, while a program is traced, are left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from amanda_torch._internals import (
    TRACERS,
    FakeTensor,
    FunctionalTensor,
    count_modes,
    is_jit_tracing,
    mode_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_plain: dict[type, bool] = {torch.Tensor: True, torch.nn.Parameter: True}


def is_tracing(tensors: Sequence[torch.Tensor]) -> bool:
    """Tell whether an execution is traced (fake tensors, ``torch.export``, ``jit.trace``)."""
    for tensor in tensors:
        cls = type(tensor)
        plain = _plain.get(cls)
        if plain is None:
            plain = _plain[cls] = not issubclass(cls, (FakeTensor, FunctionalTensor))
        if not plain:
            return True
    return is_jit_tracing() or (
        count_modes() > 0 and any(mode_of(key) is not None for key in TRACERS)
    )
