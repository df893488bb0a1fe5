"""Tensors that want a gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor


def leaf(*shape: int, **options: Any) -> Tensor:
    """Random numbers."""
    return torch.randn(*shape, **options).requires_grad_()
