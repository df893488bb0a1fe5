"""A quantized tensor is known to the tool, and shown as a row of data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from amanda_tools.arrays import extent
from amanda_tools.quantization.calibration import relative_error
from amanda_tools.quantization.formula import settings_for, stacked

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda_tools.place import Place
    from amanda_tools.quantization.calibration import Observer
    from amanda_tools.quantization.formula import Formula
    from amanda_tools.quantization.operands import Operand
    from amanda_tools.quantization.routines import Axes


@dataclass
class QuantizedTensor:
    """This is one tensor that an operator is given.

    Attributes:
        id, type, scope: the operator.
        input: the role of the tensor there.
        kind: ``weight`` or ``activation``.
        bits: of an integer.
        low, high: the least and the largest integer.
        axis: along which each index has a scale of its own; None if all of it has one.
        scale, zero_point: a value is ``(integer - zero_point) * scale``; a number for each index of
            the axis. None as long as they are not known, and where each execution has its own.
        minimum, maximum: the least and the largest value that is not cut off, likewise.
        error: the root of the ratio of squares, of what rounding changes to what is rounded: of a
            weight, or of all that was seen of an activation. None where neither is known.
    """

    id: str
    type: str
    scope: str
    input: str
    kind: str
    bits: int
    low: int
    high: int
    axis: int | None
    scale: list[float] | None
    zero_point: list[int] | None
    minimum: list[float] | None
    maximum: list[float] | None
    error: float | None


@dataclass
class Known:
    """This is what a tool knows of a tensor that it quantizes.

    Attributes:
        place: the operator.
        operand: the tensor there.
        formula: how it is rounded.
        bits: of an integer.
        observer: what chooses its range; None where that needs no data.
        settings: of the formula, one after the other; None as long as they are not known, and
            where each execution has its own.
        parameter: the number of the parameter that its operator is given, if there is one.
        average: of the ends of its range, where that moves.
        error: the relative error of rounding, where it is known.
    """

    place: Place
    operand: Operand
    formula: Formula
    bits: int
    observer: Observer | None = None
    settings: np.ndarray | None = None
    parameter: int | None = None
    average: tuple[np.float32, np.float32] | None = None
    error: float | None = None

    @property
    def title(self) -> str:
        """Return what the tensor is called: the operator and the role."""
        return f"{self.operand.name} of {self.place.id}"

    def set_by(self, value: np.ndarray, axes: Axes) -> None:
        """Take settings for a tensor of this value, by its range along axes or as a whole."""
        single = value.astype(np.float32)
        self.settings = settings_for(self.formula, *extent(single, axes, np))
        self._measure(single)

    def begin(self, value: np.ndarray, axes: Axes) -> None:
        """Take settings with which a training begins, by a value of the tensor."""
        single = value.astype(np.float32)
        self.settings = stacked(self.formula.beginning(single, axes, np))
        self._measure(single)

    def settled(self) -> tuple[np.ndarray | None, float | None]:
        """Return the settings by what was observed, if there is something, and their error."""
        if self.observer is None or not self.observer.executions:
            return self.settings, self.error
        settings = settings_for(self.formula, *self.observer.range_for(self.formula))
        return settings, self.observer.error(self.formula, settings)

    def settle(self) -> None:
        """Take the settings that follow from what was observed."""
        self.settings, self.error = self.settled()

    def row(self) -> QuantizedTensor:
        """Return what is known as plain values."""
        scale = zero_point = minimum = maximum = None
        if self.settings is not None:
            scale, zero_point = self.formula.scale_and_zero_point(self.settings, np)
            minimum, maximum = self.formula.range_of(self.settings, np)
        return QuantizedTensor(
            *self.place[:3],
            input=self.operand.name,
            kind="weight" if self.operand.is_weight else "activation",
            bits=self.bits,
            low=self.formula.grid.low,
            high=self.formula.grid.high,
            axis=self.operand.channel,
            scale=_plain(scale),
            zero_point=_plain(zero_point, _whole),
            minimum=_plain(minimum),
            maximum=_plain(maximum),
            error=self.error,
        )

    def _measure(self, value: np.ndarray) -> None:
        assert self.settings is not None
        self.error = relative_error(value, self.formula.quantized(value, self.settings, np))


def _whole(number: Any) -> int:
    """Return a zero point; 0 for that of a range which is no number."""
    return int(number) if np.isfinite(number) else 0


def _plain(array: Any, number: Callable[[Any], Any] = float) -> list[Any] | None:
    return None if array is None else [number(element) for element in np.ravel(array)]
