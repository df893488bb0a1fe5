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
from amanda_torch.tensors.straight import in_graph

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor


_nothing = contextlib.nullcontext()


class Layer(NamedTuple):
    """A layer is one wrapping of a tensor by ``vmap``."""

    level: int
    dim: int
    size: int


# For each of some tensors its layers, the outermost first.
Wrappings: TypeAlias = list[list[Layer]]


class Batches:
    """This knows how the tensors of one execution are wrapped; it keeps none of them.

    Each ``grad`` of ``torch.func`` has an autograd graph of its own, which lies within that of what
    is around it. A pass through an outer one (``vmap(grad(f))`` that is differentiated) works on
    whole batches also of what the innermost sees sample by sample.
    """

    def __init__(self, inputs: Sequence[Tensor] = (), outputs: Sequence[Tensor] = ()) -> None:
        self._innermost = 0
        self._sizes: dict[int, int] = {}
        self._inputs: Wrappings = [[]] * len(inputs)
        self._outputs: Wrappings = [[]] * len(outputs)
        if transforms_active():
            tensors = (*inputs, *outputs)
            self._innermost = max(map(_graph_level, tensors), default=0)
            self._sizes.update(
                sorted((layer.level, layer.size) for t in tensors for layer in layers(t))
            )
            self._inputs = [layers(t, below_autograd=True) for t in inputs]
            self._outputs = [layers(t, below_autograd=True) for t in outputs]
        self._levels = {layer.level for found in self._inputs + self._outputs for layer in found}

    def of_pass(self, innermost: bool = True) -> tuple[Wrappings, Wrappings]:
        """Return how the inputs and the outputs are wrapped around what the pass works on.

        Args:
            innermost: whether it goes through the innermost graph that the execution is in.
        """
        level = self._innermost if innermost else self._outer_level()
        return _above(level, self._inputs), _above(level, self._outputs)

    def _outer_level(self) -> int:
        """Return the level of the pass that runs: each ``vmap`` above it is entered once more."""
        for level in range(self._innermost):
            if level + sum(each > level for each in self._levels) == current_level():
                return level
        return 0

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
        above = sum(level > layer.level for level in self._levels)
        return current_level() - above


def innermost(tensor: Tensor) -> Tensor:
    """Return the tensor that transforms of ``torch.func`` have wrapped, itself if none has."""
    while is_wrapped(tensor):
        tensor = unwrapped(tensor)
    return tensor


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


def _graph_level(tensor: Tensor) -> int:
    """Return the level of the innermost graph that a tensor is in, 0 outside of all transforms."""
    tensor = in_graph(tensor)
    return level_of(tensor) if tensor.requires_grad and is_wrapped(tensor) else 0


def _above(level: int, wrappings: Wrappings) -> Wrappings:
    return [[layer for layer in found if layer.level > level] for found in wrappings]


UNBATCHED = Batches()
"""How they are wrapped outside of ``vmap``."""
