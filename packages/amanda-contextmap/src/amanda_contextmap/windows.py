"""Windows slide over the axes of space in convolutions and pooling.

All lists have one entry for each axis of space; paddings are listed as ONNX does, all that come
before an axis first, then all that come after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    Sizes = Sequence[int]


def symmetric(padding: Sizes) -> list[int]:
    """Return the same padding on both sides."""
    return [*padding, *padding]


def split(totals: Sizes) -> list[int]:
    """Split total paddings, with the odd element last (``SAME_UPPER``)."""
    before = [total // 2 for total in totals]
    return [*before, *(total - b for total, b in zip(totals, before, strict=True))]


def span(kernel: Sizes, dilations: Sizes) -> list[int]:
    """Count the elements that a window reaches over."""
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]


def same(sizes: Sequence[int | None], reach: Sizes, strides: Sizes) -> list[int] | None:
    """Compute the total paddings with which the output has ``ceil(size / stride)`` elements.

    None if they depend on a size that is not known.
    """
    totals = []
    for size, r, stride in zip(sizes, reach, strides, strict=True):
        if stride == 1:
            totals.append(r - 1)
        elif size is None:
            return None
        else:
            totals.append(max((-(-size // stride) - 1) * stride + r - size, 0))
    return totals
