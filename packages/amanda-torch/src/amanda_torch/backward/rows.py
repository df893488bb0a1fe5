"""PyTorch may have some rows of a gradient alone, as of an embedding with ``sparse=True``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def whole(gradient: Tensor | None) -> Tensor | None:
    """Return a gradient with all its rows, as routines of any backend take it."""
    if gradient is None or gradient.layout is not torch.sparse_coo:
        return gradient
    return gradient.to_dense()


def in_rows(gradient: Tensor | None, like: Tensor | None) -> Tensor | None:
    """Return a gradient in rows as PyTorch had its original: optimizers may take only such."""
    if gradient is None or like is None or like.layout is not torch.sparse_coo:
        return gradient
    if gradient.layout is torch.sparse_coo:
        return gradient
    return gradient.to_sparse(like.sparse_dim())
