"""A layout tells how a tensor of a backend is seen with its axes as ONNX has them.

Layouts know ranks and fixed sizes of weights, never the sizes of activations, which may differ from
one execution to the next.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    Axes = int | tuple[int, ...]


class Layout(Protocol):
    """A layout turns tensors between the backend and ONNX.

    Both methods take a tensor and the backend's array namespace, and both are differentiable.
    """

    def to_canonical(self, tensor: Any, xp: Any) -> Any:
        """Turn the backend's tensor into what ONNX has."""

    def to_native(self, tensor: Any, xp: Any) -> Any:
        """Turn a tensor of ONNX into what the backend has."""


class Permute:
    """The axes at ``native`` are at ``canonical`` in ONNX."""

    def __init__(self, native: Axes, canonical: Axes) -> None:
        self.native = native
        self.canonical = canonical

    def to_canonical(self, tensor: Any, xp: Any) -> Any:
        """Move the axes to where ONNX has them."""
        return xp.moveaxis(tensor, self.native, self.canonical)

    def to_native(self, tensor: Any, xp: Any) -> Any:
        """Move the axes to where the backend has them."""
        return xp.moveaxis(tensor, self.canonical, self.native)


class Reshaped:
    """A tensor has the same elements in another shape; one size of each may be -1."""

    def __init__(self, native: Sequence[int], canonical: Sequence[int]) -> None:
        self.native = tuple(native)
        self.canonical = tuple(canonical)

    def to_canonical(self, tensor: Any, xp: Any) -> Any:
        """Reshape the tensor to what ONNX has."""
        return xp.reshape(tensor, self.canonical)

    def to_native(self, tensor: Any, xp: Any) -> Any:
        """Reshape the tensor to what the backend has."""
        return xp.reshape(tensor, self.native)


class Merged:
    """The last axes, whose sizes are known, are one in ONNX."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)

    def to_canonical(self, tensor: Any, xp: Any) -> Any:
        """Merge those axes."""
        return xp.reshape(tensor, (*tensor.shape[: -len(self.sizes)], math.prod(self.sizes)))

    def to_native(self, tensor: Any, xp: Any) -> Any:
        """Take those axes apart."""
        return xp.reshape(tensor, (*tensor.shape[:-1], *self.sizes))


class Expanded:
    """A tensor has one more axis in ONNX, of size one."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def to_canonical(self, tensor: Any, xp: Any) -> Any:
        """Add the axis."""
        return xp.expand_dims(tensor, axis=self.axis)

    def to_native(self, tensor: Any, xp: Any) -> Any:
        """Remove the axis."""
        return xp.squeeze(tensor, axis=self.axis)


class Squeezed:
    """A tensor lacks an axis of size one in ONNX."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def to_canonical(self, tensor: Any, xp: Any) -> Any:
        """Remove the axis."""
        return xp.squeeze(tensor, axis=self.axis)

    def to_native(self, tensor: Any, xp: Any) -> Any:
        """Add the axis."""
        return xp.expand_dims(tensor, axis=self.axis)


def stacked(axis: int, rank: int) -> tuple[int, Expanded]:
    """Return the axis along which tensors of a rank are stacked, and what adds it to each.

    The axis is counted from the front.
    """
    place = axis % (rank + 1)
    return place, Expanded(place)


class Gates:
    """The first axis has a block for each gate of a recurrent cell, in another order."""

    def __init__(self, order: Sequence[int]) -> None:
        self.order = list(order)
        self.inverse = [self.order.index(i) for i in range(len(self.order))]

    def to_canonical(self, tensor: Any, xp: Any) -> Any:
        """Order the gates as ONNX does."""
        return self._ordered(tensor, self.order, xp)

    def to_native(self, tensor: Any, xp: Any) -> Any:
        """Order the gates as the backend does."""
        return self._ordered(tensor, self.inverse, xp)

    @staticmethod
    def _ordered(tensor: Any, order: list[int], xp: Any) -> Any:
        blocks = xp.reshape(tensor, (len(order), -1, *tensor.shape[1:]))
        return xp.reshape(blocks[order], tensor.shape)


class Directions:
    """The last axis holds a recurrent layer's directions; ONNX has an axis for them."""

    def __init__(self, directions: int, axis: int) -> None:
        self.directions = directions
        self.axis = axis

    def to_canonical(self, tensor: Any, xp: Any) -> Any:
        """Give the directions an axis of their own."""
        split = xp.reshape(tensor, (*tensor.shape[:-1], self.directions, -1))
        return xp.moveaxis(split, -2, self.axis)

    def to_native(self, tensor: Any, xp: Any) -> Any:
        """Put the directions along the last axis."""
        moved = xp.moveaxis(tensor, self.axis, -2)
        return xp.reshape(moved, (*moved.shape[:-2], -1))


class Cast:
    """ONNX has integers of another size than the backend."""

    def __init__(self, native: str, canonical: str) -> None:
        self.native = native
        self.dtype = canonical

    def to_canonical(self, tensor: Any, xp: Any) -> Any:
        """Cast the tensor to the data type that ONNX has."""
        return xp.astype(tensor, getattr(xp, self.dtype))

    def to_native(self, tensor: Any, xp: Any) -> Any:
        """Cast the tensor to the data type that the backend has."""
        return xp.astype(tensor, getattr(xp, self.native))


class Promoted(Cast):
    """The framework itself casts these numbers to a type that has room for more of them."""

    def to_native(self, tensor: Any, xp: Any) -> Any:
        """Cast the tensor to the data type that the backend has.

        Raises:
            ValueError: that has no room for it.
        """
        back = super().to_native(tensor, xp)
        if not bool(xp.all(self.to_canonical(back, xp) == tensor)):
            raise ValueError(
                f"what is returned is no {self.native}, which the operator is given and casts to "
                f"{self.dtype}; return values that {self.native} has, or replace the operator"
            )
        return back


class Chain:
    """A chain is one layout after the other, beginning with the backend's tensor."""

    def __init__(self, *layouts: Layout) -> None:
        self.layouts = layouts

    def to_canonical(self, tensor: Any, xp: Any) -> Any:
        """Turn the tensor by all of them, in order."""
        for layout in self.layouts:
            tensor = layout.to_canonical(tensor, xp)
        return tensor

    def to_native(self, tensor: Any, xp: Any) -> Any:
        """Turn the tensor back by all of them, the last one first."""
        for layout in reversed(self.layouts):
            tensor = layout.to_native(tensor, xp)
        return tensor


CHANNELS_LAST = Permute(-1, 1)
"""NHWC, NWC or NDHWC, seen as NCHW, NCW or NCDHW."""

KERNEL_IO = Permute((-1, -2), (0, 1))
"""HWIO seen as OIHW; also (H, W, out, in) of a transposed convolution as (in, out, H, W)."""

MATRIX = Permute(-1, -2)
"""The last two axes exchanged: (in, out) seen as (out, in)."""

UNBATCHED = Expanded(0)
"""An example on its own, seen as a batch of one."""
