"""Fake quantization goes by a range nudged to have zero in it, as TensorFlow computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from amanda_tools.arrays import extent, like, summed_like

if TYPE_CHECKING:
    from amanda_tools.quantization.grid import Grid, Numbers


class NudgedSettings(NamedTuple):
    """A tensor is rounded by these settings, arrays that broadcast to it.

    Attributes:
        minimum, maximum: the range; of nothing but zero if both are.
        lowest, highest: the same nudged, so that zero is a value.
        scale: the distance of two values.
        inverse: of the scale, but for rounding.
    """

    minimum: Any
    maximum: Any
    lowest: Any
    highest: Any
    scale: Any
    inverse: Any


@dataclass(frozen=True, slots=True)
class Nudged:
    """This formula rounds to one of the values that a range is divided into, zero among them.

    Its values and gradients are to the bit those of TensorFlow's ``fake_quant_with_min_max_args``
    and ``..._vars_per_channel`` or, if it ``divides``, of ``..._vars``, which alone divides by the
    scale where the others multiply by its inverse. A tensor is cut off ahead of rounding, ties go
    up, and a gradient passes within the nudged range. A range of nothing but zero gives zeros, and
    passes all gradients. All methods take arrays of one library, whose namespace is ``xp``.
    """

    grid: Grid
    divides: bool = False

    def settings(self, minimum: Any, maximum: Any, xp: Any, numbers: Numbers) -> NudgedSettings:
        """Return the settings for a range: it is widened to have zero in it, or be symmetric."""
        zero = xp.zeros_like(minimum)
        minimum, maximum = xp.minimum(minimum, zero), xp.maximum(maximum, zero)
        if self.grid.symmetric:
            maximum = xp.maximum(-minimum, maximum)
            minimum = -maximum
        low, high = self.grid.low, self.grid.high
        empty = (minimum == 0) & (maximum == 0)
        width = xp.where(empty, xp.ones_like(minimum), maximum - minimum)
        scale, inverse = width / numbers.steps, numbers.steps / width
        zero_point = xp.clip(low - minimum / scale, low, high)
        below = xp.floor(zero_point)
        zero_point = xp.where(zero_point - below >= 0.5, below + 1, below)
        lowest, highest = (low - zero_point) * scale, (high - zero_point) * scale
        lowest, highest = xp.where(empty, zero, lowest), xp.where(empty, zero, highest)
        return NudgedSettings(minimum, maximum, lowest, highest, scale, inverse)

    def beginning(self, x: Any, axes: tuple[int, ...] | None, xp: Any) -> NudgedSettings:
        """Return the settings with which a training begins: those for the range of the tensor."""
        return self.settings(*extent(x, axes, xp), xp, self.grid.numbers)

    def for_values(self, x: Any) -> Nudged:
        """Return this formula, whose range takes in what values there are."""
        return self

    def scale_and_zero_point(self, settings: Any, xp: Any) -> tuple[Any, Any]:
        """Return the distance of two values, and the integer that stands for zero."""
        _, _, lowest, _, scale, _ = settings
        return scale, self.grid.low - xp.round(lowest / scale)

    def range_of(self, settings: Any, xp: Any) -> tuple[Any, Any]:
        """Return the least and the largest value that there is."""
        _, _, lowest, highest, _, _ = settings
        return lowest, highest

    def quantized(self, x: Any, settings: Any, xp: Any) -> Any:
        """Return the values that a tensor is rounded to."""
        _, _, lowest, highest, scale, inverse = (like(setting, x, xp) for setting in settings)
        zero = xp.floor(-lowest * inverse + 0.5)
        shifted = xp.maximum(xp.minimum(x, highest), lowest) - lowest
        steps = shifted / scale if self.divides else shifted * inverse
        return xp.floor(steps - zero + 0.5) * scale

    def passed(self, gradient: Any, x: Any, settings: Any, xp: Any) -> Any:
        """Return the gradient for a tensor, given that for its values: none where it was cut."""
        minimum, maximum, lowest, highest, _, _ = (like(setting, x, xp) for setting in settings)
        inside = (x >= lowest) & (x <= highest) | (minimum == 0) & (maximum == 0)
        return xp.where(inside, gradient, xp.zeros_like(gradient))

    def moved(self, gradient: Any, x: Any, settings: Any, rate: float, xp: Any) -> NudgedSettings:
        """Return the settings after a step of gradient descent on the two ends of the range.

        The gradient of an end is the sum of those of what was cut off there.
        """
        minimum, maximum, lowest, highest, _, _ = (like(setting, x, xp) for setting in settings)
        passed = self.passed(gradient, x, settings, xp)
        below = xp.where(x < lowest, gradient - passed, xp.zeros_like(gradient))
        above = xp.where(x > highest, gradient - passed, xp.zeros_like(gradient))
        return self.settings(
            minimum - rate * summed_like(below, minimum, xp),
            maximum - rate * summed_like(above, maximum, xp),
            xp,
            self.grid.numbers,
        )
