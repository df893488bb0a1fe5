"""Gradients may be computed beside those of the program, which does not notice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from amanda_torch.thread import unwatched
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def probe(
    outputs: Sequence[Any], inputs: Sequence[Any], grads: Sequence[Tensor | None]
) -> Sequence[Tensor | None]:
    """Compute gradients only to show them; tools see nothing of how."""
    # The program's own run will tell of an anomaly, and is what its modes are to count.
    with unwatched(), torch.autograd.set_detect_anomaly(False), unshown():
        return torch.autograd.grad(outputs, inputs, grads, retain_graph=True, allow_unused=True)
