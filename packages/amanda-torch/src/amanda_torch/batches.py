"""Gradients under ``vmap`` are shown of one sample at a time, as the program sees its tensors.

There autograd works on what ``vmap`` wraps: on whole batches, in nodes that know of no samples.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from amanda_torch._internals import (
    add_batch_dim,
    batch_dim,
    current_level,
    entered_vmap,
    is_batched,
    is_wrapped,
    level_of,
    remove_batch_dim,
    transforms_active,
    unwrapped,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor


_nothing = contextlib.nullcontext()


class Layer(NamedTuple):
    """A layer is one wrapping of a tensor by ``vmap``."""

    level: int
    dim: int
    size: int


class Batches:
    """This knows how the tensors of one execution are wrapped; it keeps none of them."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._sizes = dict(
            sorted((layer.level, layer.size) for t in tensors for layer in layers(t))
        )

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """Open a block in which tensors of one sample exist, as a Function's backward has them."""
        return self._entered() if self._sizes else _nothing

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for size in self._sizes.values():
                stack.enter_context(entered_vmap(size, "different"))
            yield

    def of_sample(self, grad: Tensor | None, layers: Sequence[Layer]) -> Tensor | None:
        """Return a gradient of the whole batch as the program sees it, where it is so wrapped."""
        if grad is not None:
            for layer in reversed(layers):
                grad = add_batch_dim(grad, layer.dim, self._level(layer))
        return grad

    def of_batch(self, grad: Tensor | None, layers: Sequence[Layer]) -> Tensor | None:
        """Undo :meth:`of_sample`."""
        if grad is not None:
            for layer in layers:
                grad = remove_batch_dim(grad, self._level(layer), layer.size, layer.dim)
        return grad

    def _level(self, layer: Layer) -> int:
        above = sum(level > layer.level for level in self._sizes)
        return current_level() - above


Batching: TypeAlias = tuple[Batches, list[list[Layer]], list[list[Layer]]]
"""How the tensors of an execution are wrapped, all together, its inputs and its outputs."""

UNBATCHED = Batches(())
"""How they are wrapped outside of ``vmap``."""


def layers(tensor: Tensor, below_autograd: bool = False) -> list[Layer]:
    """List the wrappings of a tensor by ``vmap``, the outermost first.

    Args:
        tensor: what is wrapped.
        below_autograd: all of them, not only those around what autograd knows.
    """
    found = []
    while (below_autograd or not tensor.requires_grad) and is_wrapped(tensor):
        inner = unwrapped(tensor)
        if is_batched(tensor):
            dim = batch_dim(tensor)
            found.append(Layer(level_of(tensor), dim, inner.shape[dim]))
        tensor = inner
    return found


def batching_of(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Batching:
    """Return how ``vmap`` has wrapped the tensors of an execution, if it has."""
    if not transforms_active():
        return UNBATCHED, [[]] * len(inputs), [[]] * len(outputs)
    return (
        Batches([*inputs, *outputs]),
        [layers(t) for t in inputs],
        [layers(t) for t in outputs],
    )
