"""Views tell which elements of a tensor another one has: views of its memory, and copies."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

# Autograd nodes of what leaves each element where it is.
_KEEPING = re.compile("(Alias|Clone|Detach|ToCopy)Backward[0-9]+")
# Those that pass on numbers of any type, and are given one gradient alone.
_PASSING = re.compile(
    "(Expand|Flatten|Movedim|Narrow|Permute|Select|Slice|Squeeze|T|Transpose|UnsafeView|Unsqueeze"
    "|View)Backward[0-9]+"
)


class View(NamedTuple):
    """A view of a tensor tells which of its elements another one has.

    Attributes:
        strides: those of the tensor that is viewed.
        size, stride, offset: those of the view, in the memory of that.
    """

    strides: Sequence[int]
    size: Sequence[int]
    stride: Sequence[int]
    offset: int

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the view of a tensor, which is copied if it has other strides."""
        like = torch.empty_strided(
            tensor.shape, self.strides, dtype=tensor.dtype, device=tensor.device
        )
        return torch.as_strided(like.copy_(tensor), self.size, self.stride, self.offset)


def view_of_base(view: torch.Tensor) -> View:
    """Tell how a view sees its base."""
    base = view._base
    assert base is not None
    offset = int(view.storage_offset() - base.storage_offset())
    return View(base.stride(), view.size(), view.stride(), offset)


def views_by_nodes(tensor: torch.Tensor) -> list[View] | None:
    """Tell by which view a tensor sees what autograd says it was copied, cast and viewed of.

    It is a list of that one, or empty for the same. What it was made of has its elements in
    their order. None where it is no view of that.
    """
    node, nodes = tensor.grad_fn, []
    while node is not None and not hasattr(node, "variable"):
        if not _KEEPING.fullmatch(node.name()):
            nodes.append(node)
        node = node.next_functions[0][0]
    if not nodes:
        return []
    if not all(_PASSING.fullmatch(node.name()) for node in nodes):
        return None
    numbers = torch.arange(1, tensor.numel() + 1).view(tensor.shape)
    for node in nodes:  # which pass on, as a gradient, by which element each one is taken
        passed = node(numbers)  # type: ignore[operator]
        numbers = passed[0] if isinstance(passed, tuple) else passed
    (taken,) = numbers.flatten().nonzero(as_tuple=True)
    at = numbers.flatten()[taken] - 1
    places = torch.full((tensor.numel(),), -1)
    if not len(at) or at.max() >= len(places):
        return None
    view = _affine(places.index_copy_(0, at, taken).view(tensor.shape), numbers.shape)
    return None if view is None else [view]


def _affine(places: torch.Tensor, shape: Sequence[int]) -> View | None:
    """Return a view of a tensor of some shape that has its elements at these places, if any."""
    offset = int(places.flatten()[0])
    steps = [places.select(d, min(1, n - 1)).flatten()[0] for d, n in enumerate(places.shape)]
    stride = [int(step) - offset for step in steps]
    if offset < 0 or min(stride, default=0) < 0:
        return None
    view = View(torch.empty(shape, device="meta").stride(), places.shape, stride, offset)
    elements = torch.arange(math.prod(shape)).view(shape)
    last = offset + sum(step * (n - 1) for step, n in zip(stride, places.shape, strict=True))
    fits = last < elements.numel()
    return view if fits and torch.equal(view.of(elements), places) else None
