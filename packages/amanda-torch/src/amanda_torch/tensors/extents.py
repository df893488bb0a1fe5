"""An extent tells where the elements of a tensor lie in its memory, and which of two overlap."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    Steps = tuple[tuple[int, int], ...]  # bytes from one element to the next, and how many more

# Pairs of elements' rows that are compared before two extents are taken to overlap.
_PATIENCE = 256


class Extent(NamedTuple):
    """An extent is where the elements of a tensor lie, in bytes.

    Attributes:
        start: of the first one.
        end: behind the last one; ``start`` where there are none.
        steps: for each axis that has several, how far apart its elements are and how many follow
            the first, the largest first; empty for a single run of ``item`` bytes.
        item: the size of an element.
        exact: whether the elements are known; else they are anywhere from start to end.
        shape: of the tensor.
    """

    start: int
    end: int
    steps: Steps
    item: int
    exact: bool
    shape: tuple[int, ...]

    @property
    def dense(self) -> bool:
        """Tell whether it has all that lies from start to end."""
        return self.exact and math.prod(n + 1 for _, n in self.steps) * self.item == (
            self.end - self.start
        )

    def fills(self, bytes: int) -> bool:
        """Tell whether it is all of a memory of that size."""
        return self.start == 0 and self.end >= bytes and self.dense

    def covers(self, other: Extent) -> bool:
        """Tell whether all of another one is surely in this one."""
        if not (self.start <= other.start and other.end <= self.end):
            return False
        return self.dense or (self.exact and self[:4] == other[:4])

    def meets(self, other: Extent) -> bool:
        """Tell whether the two may have bytes in common."""
        if self.end <= other.start or other.end <= self.start:
            return False
        if not (self.exact and other.exact):
            return True
        search = _Search()
        return search.meet(self.steps, self.item, other.steps, other.item, other.start - self.start)

    def with_(self, other: Extent) -> Extent:
        """Return all that lies between the ends of both, of which not all is in either."""
        return Extent(
            min(self.start, other.start), max(self.end, other.end), (), self.item, False, ()
        )


def extent_of(tensor: Tensor) -> Extent:
    """Return where the elements of a tensor lie in its memory."""
    item = tensor.element_size()
    if tensor.is_nested:  # it does not tell where in its memory each of its tensors lies
        return Extent(0, tensor.untyped_storage().nbytes(), (), item, False, ())
    shape = tuple(tensor.shape)
    start = int(tensor.storage_offset()) * item
    if 0 in shape:
        return Extent(start, start, (), item, True, shape)
    steps = [
        (int(stride) * item, size - 1)
        for stride, size in zip(tensor.stride(), shape, strict=True)
        if stride and size > 1
    ]
    steps.sort(reverse=True)
    end = start + item + sum(step * count for step, count in steps)
    return Extent(start, end, _joined(steps, item), item, True, shape)


def _joined(steps: Sequence[tuple[int, int]], item: int) -> Steps:
    """Join axes that lie behind one another without a gap."""
    found: list[tuple[int, int]] = []
    for step, count in steps:
        if found and found[-1][0] == step * (count + 1):
            _, outer = found.pop()
            count = (outer + 1) * (count + 1) - 1
        found.append((step, count))
    return tuple(found)


class _Search:
    """A search looks for bytes that two extents have in common, up to a number of tries."""

    def __init__(self) -> None:
        self._tries = _PATIENCE

    def meet(self, a: Steps, a_item: int, b: Steps, b_item: int, offset: int) -> bool:
        """Tell whether two have any in common, the second beginning ``offset`` behind the first."""
        self._tries -= 1
        if self._tries < 0:
            return True
        a_end, b_end = _length(a, a_item), _length(b, b_item)
        if offset >= a_end or offset + b_end <= 0:
            return False
        if (a == () or a[0] == (a_item, a_end // a_item - 1)) and (
            b == () or b[0] == (b_item, b_end // b_item - 1)
        ):
            return True  # two runs without gaps
        if not b or (a and a[0][0] >= b[0][0]):
            (step, count), rest = a[0], a[1:]
            # the rows of the first one that reach the second one
            first = max(0, math.ceil((offset - _length(rest, a_item) + 1) / step))
            last = min(count, (offset + b_end - 1) // step)
            return any(
                self.meet(rest, a_item, b, b_item, offset - row * step)
                for row in range(first, last + 1)
            )
        return self.meet(b, b_item, a, a_item, -offset)


def _length(steps: Steps, item: int) -> int:
    return item + sum(step * count for step, count in steps)
