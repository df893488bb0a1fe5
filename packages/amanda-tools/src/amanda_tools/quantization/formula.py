"""A tensor is rounded by a formula, and the range that it is given."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np

from amanda_tools.quantization.affine import Affine
from amanda_tools.quantization.grid import Grid, Numbers, grid_of
from amanda_tools.quantization.nudged import Nudged

Arithmetic = Literal["torch", "tensorflow"]
Settings = tuple[Any, ...]


class Formula(Protocol):
    """A formula rounds tensors by settings, which are arrays that broadcast to the tensor.

    Its methods take arrays of one library, whose namespace is ``xp``.
    """

    @property
    def grid(self) -> Grid:
        """Return the integers that it rounds to."""

    def settings(self, minimum: Any, maximum: Any, xp: Any, numbers: Numbers) -> Settings:
        """Return the settings for a range."""

    def beginning(self, x: Any, axes: tuple[int, ...] | None, xp: Any) -> Settings:
        """Return the settings with which their training begins, by a value of the tensor."""

    def for_values(self, x: Any) -> Formula:
        """Return the formula for values like these where settings are learned."""

    def scale_and_zero_point(self, settings: Any, xp: Any) -> tuple[Any, Any]:
        """Return the distance of two values, and the integer that stands for zero."""

    def range_of(self, settings: Any, xp: Any) -> tuple[Any, Any]:
        """Return the least and the largest value that there is."""

    def quantized(self, x: Any, settings: Any, xp: Any) -> Any:
        """Return the values that a tensor is rounded to."""

    def passed(self, gradient: Any, x: Any, settings: Any, xp: Any) -> Any:
        """Return the gradient for a tensor, given that for its values."""

    def moved(self, gradient: Any, x: Any, settings: Any, rate: float, xp: Any) -> Settings:
        """Return the settings after a step of gradient descent, given the values' gradient."""


def formula_of(
    arithmetic: Arithmetic, bits: int, symmetric: bool, narrow: bool, constant: bool
) -> Formula:
    """Return the formula whose results are to the bit those of a framework.

    Args:
        arithmetic: of which framework.
        bits: from 2 to 8.
        symmetric: whether the range reaches as far to both sides of zero.
        narrow: leave out the lowest integer.
        constant: whether the range stays as it is, or is one for each channel, which TensorFlow
            computes otherwise than one of a whole tensor that may change.

    Raises:
        ValueError: there are fewer bits, or more.
    """
    if arithmetic == "torch":
        return Affine(grid_of(bits, symmetric, narrow))
    unsigned = grid_of(bits, False, narrow)
    return Nudged(unsigned._replace(symmetric=symmetric), divides=not constant)


def settings_for(formula: Formula, minimum: Any, maximum: Any) -> np.ndarray:
    """Return the settings of a formula for a range, one after the other, in single precision."""
    ends = np.asarray(minimum, np.float32), np.asarray(maximum, np.float32)
    return stacked(formula.settings(*ends, np, formula.grid.numbers))


def stacked(settings: Settings) -> np.ndarray:
    """Return settings as one array in single precision."""
    return np.stack([np.asarray(setting, np.float32) for setting in settings])
