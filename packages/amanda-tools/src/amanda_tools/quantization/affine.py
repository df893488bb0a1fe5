"""Fake quantization goes by a scale and a zero point, as PyTorch computes it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from amanda_tools.arrays import like, size_of, summed_like
from amanda_tools.quantization.grid import Grid, Numbers

# The least scale, so that a tensor of zeros has one.
SMALLEST = 1.1920928955078125e-07


class AffineSettings(NamedTuple):
    """A tensor is rounded by these settings, arrays that broadcast to it.

    Attributes:
        scale: the distance of two values.
        zero_point: the integer that stands for zero.
        inverse: of the scale.
    """

    scale: Any
    zero_point: Any
    inverse: Any


@dataclass(frozen=True, slots=True)
class Affine:
    """This formula rounds to ``(n - zero_point) * scale`` for the nearest integer ``n`` of a grid.

    Its values and gradients are to the bit those of ``torch.fake_quantize_per_tensor_affine`` and
    ``torch.fake_quantize_per_channel_affine``: a tensor is multiplied by the inverse of the scale,
    ties go to the even integer, and a gradient passes where the integer was in the grid ahead of
    cutting it off. All methods take arrays of one library, whose namespace is ``xp``.
    """

    grid: Grid

    def settings(self, minimum: Any, maximum: Any, xp: Any, numbers: Numbers) -> AffineSettings:
        """Return the settings for a range, which is widened to have zero in it."""
        zero = xp.zeros_like(minimum)
        minimum, maximum = xp.minimum(minimum, zero), xp.maximum(maximum, zero)
        if self.grid.symmetric:
            scale = xp.maximum(-minimum, maximum) / (numbers.steps / 2)
        else:
            scale = (maximum - minimum) / numbers.steps
        scale = xp.maximum(scale, zero + SMALLEST)
        lowest = zero if self.grid.symmetric else xp.round(minimum / scale)
        low = 0 if self.grid.symmetric else self.grid.low
        zero_point = xp.clip(low - lowest, self.grid.low, self.grid.high)
        return AffineSettings(scale, zero_point, numbers.one / scale)

    def beginning(self, x: Any, axes: tuple[int, ...] | None, xp: Any) -> AffineSettings:
        """Return the settings that LSQ begins with: a scale by mean magnitude, no zero point."""
        magnitude = xp.mean(xp.abs(x), axis=axes, keepdims=axes is not None)
        return self._with_scale(2 * magnitude * self.grid.high**-0.5, xp)

    def for_values(self, x: Any) -> Affine:
        """Return a formula with as many integers from 0 on, if no value is negative."""
        if self.grid.low >= 0 or x.min() < 0:
            return self
        return replace(self, grid=Grid(0, self.grid.steps, self.grid.symmetric))

    def scale_and_zero_point(self, settings: Any, xp: Any) -> tuple[Any, Any]:
        """Return the distance of two values, and the integer that stands for zero."""
        scale, zero_point, _ = settings
        return scale, zero_point

    def range_of(self, settings: Any, xp: Any) -> tuple[Any, Any]:
        """Return the least and the largest value that there is."""
        scale, zero_point, _ = settings
        return (self.grid.low - zero_point) * scale, (self.grid.high - zero_point) * scale

    def quantized(self, x: Any, settings: Any, xp: Any) -> Any:
        """Return the values that a tensor is rounded to."""
        scale, zero_point, _ = settings
        integers = xp.clip(self._integers(x, settings, xp), self.grid.low, self.grid.high)
        return like((like(integers, scale, xp) - zero_point) * scale, x, xp)

    def passed(self, gradient: Any, x: Any, settings: Any, xp: Any) -> Any:
        """Return the gradient for a tensor, given that for its values: none where it was cut."""
        integers = self._integers(x, settings, xp)
        inside = (integers >= self.grid.low) & (integers <= self.grid.high)
        return xp.where(inside, gradient, xp.zeros_like(gradient))

    def moved(self, gradient: Any, x: Any, settings: Any, rate: float, xp: Any) -> AffineSettings:
        """Return the settings after a step of gradient descent, with the scale's gradient of LSQ.

        It is scaled by one over the root of the number of elements that share the scale times
        the largest integer. The zero point stays where it is, and the scale larger than zero.
        """
        scale, _, inverse = settings
        integers = self._integers(x, settings, xp)
        cut = xp.clip(integers, self.grid.low, self.grid.high)
        slope = xp.where(integers == cut, cut - x * like(inverse, x, xp), cut)
        sharing = size_of(x) / size_of(scale)
        found = summed_like(gradient * slope, scale, xp) * (sharing * self.grid.high) ** -0.5
        return self._with_scale(scale - rate * like(found, scale, xp), xp)

    def _with_scale(self, scale: Any, xp: Any) -> AffineSettings:
        """Return settings without a zero point."""
        zero = xp.zeros_like(scale)
        scale = xp.maximum(scale, zero + SMALLEST)
        return AffineSettings(scale, zero, 1 / scale)

    def _integers(self, x: Any, settings: Any, xp: Any) -> Any:
        _, zero_point, inverse = settings
        return xp.round(x * like(inverse, x, xp)) + like(zero_point, x, xp)
