"""In a later backward pass an operator's gradient is told from what else comes to its inputs.

A backward pass that is differentiated (``create_graph=True``) leads later ones to what the operator
has saved: its inputs, its outputs, what it computed in between. What these send to its inputs is
the derivative of its gradient and not its gradient, and autograd adds up both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from amanda_torch._internals import graph_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    Grads = Sequence[Tensor | None]


class Passes:
    """These are the backward passes through one execution."""

    _differentiated: int | None = None
    _own: tuple[int, Grads] | None = None

    def begin(self) -> None:
        """Take note of a pass that comes to the outputs."""
        self._own = None
        if self._differentiated is None and torch.is_grad_enabled():
            self._differentiated = graph_task()

    @property
    def is_later(self) -> bool:
        """Tell whether the pass that runs comes after one that was differentiated."""
        return self._differentiated is not None and self._differentiated != graph_task()

    def keep(self, own: Grads) -> None:
        """Keep what the operator sends to its inputs in this pass until that comes to them."""
        self._own = graph_task(), own

    def take(self) -> Grads | None:
        """Return what was kept in this pass; None if no gradient came to the outputs."""
        kept, self._own = self._own, None
        return kept[1] if kept is not None and kept[0] == graph_task() else None


def flows(grads: Grads) -> bool:
    """Tell whether there is any gradient: autograd runs nodes also with none at all."""
    return any(grad is not None for grad in grads)


def exchanged(total: Grads, own: Grads, substituted: Grads) -> Grads:
    """Return what comes to the inputs, with something else for what the operator sends."""
    if substituted is own:
        return total
    return [_exchanged(*each) for each in zip(total, own, substituted, strict=True)]


def _exchanged(total: Tensor | None, own: Tensor | None, new: Tensor | None) -> Tensor | None:
    if new is own or new is None or total is None:
        return total
    if own is None:
        return total + new
    with_rest = total + (new - own)
    if total.layout is not torch.strided:
        return with_rest
    # Where nothing else comes it is exactly the substitute, also of what is not finite.
    alone = (total == own) | (total.isnan() & own.isnan())
    return torch.where(alone, new, with_rest)
