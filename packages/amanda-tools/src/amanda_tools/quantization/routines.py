"""These routines are inserted for a quantized tensor: to round it, and to pass its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amanda_tools.arrays import extent, like, widened
from amanda_tools.quantization.grid import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    import amanda

    from amanda_tools.quantization.formula import Formula, Settings

Axes = tuple[int, ...] | None


@dataclass(frozen=True)
class Rounding:
    """A rounding has the routines for one tensor, whose values are rounded by a formula.

    Attributes:
        formula: how.
        xp: the namespace of the backend's arrays.
        describe: tells the type of a tensor.
    """

    formula: Formula
    xp: Any
    describe: Callable[[Any], amanda.TensorInfo]

    def by_settings(self, x: Any, settings: Any) -> Any:
        """Return the tensor rounded by known settings, one after the other in an array."""
        values = self.formula.quantized(self._wide(x), self._each(settings), self.xp)
        return like(values, x, self.xp)

    def passed_by_settings(self, gradient: Any, x: Any, settings: Any) -> Any:
        """Return the gradient for the tensor, given that for what it was rounded to."""
        if gradient is None:
            return None
        return self.formula.passed(gradient, self._wide(x), self._each(settings), self.xp)

    def moved(self, gradient: Any, x: Any, settings: Any, rate: float) -> Settings:
        """Return the settings after a step of gradient descent."""
        wide = self._wide(x)
        gradient = like(gradient, wide, self.xp)
        return self.formula.moved(gradient, wide, self._each(settings), rate, self.xp)

    def by_own_range(self, x: Any, axes: Axes, numbers: Any) -> Any:
        """Return the tensor rounded by the range that it has, along axes or as a whole."""
        if _is_empty(self.describe(x)):
            return None
        return self.by_settings(x, self._own_settings(x, axes, numbers))

    def passed_by_own_range(self, gradient: Any, x: Any, axes: Axes, numbers: Any) -> Any:
        """Return the gradient for a tensor that was rounded by the range that it has."""
        if gradient is None or _is_empty(self.describe(x)):
            return None
        return self.passed_by_settings(gradient, x, self._own_settings(x, axes, numbers))

    def extent(self, x: Any, axes: Axes) -> tuple[Any, Any]:
        """Return the least and the largest element, in single precision at least."""
        return extent(self._wide(x), axes, self.xp)

    def _own_settings(self, x: Any, axes: Axes, numbers: Any) -> Settings:
        ends = self.extent(x, axes)
        steps, one = (like(number, ends[0], self.xp) for number in self.xp.unstack(numbers))
        return self.formula.settings(*ends, self.xp, Numbers(steps, one))

    def _wide(self, x: Any) -> Any:
        return widened(x, self.describe(x).dtype, self.xp)

    def _each(self, settings: Any) -> Settings:
        """Return settings as a tuple, also those that are one after the other in an array."""
        return settings if isinstance(settings, tuple) else self.xp.unstack(settings)


def _is_empty(info: amanda.TensorInfo) -> bool:
    return info.shape is not None and 0 in info.shape
