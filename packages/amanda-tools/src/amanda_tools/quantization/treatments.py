"""A treatment says what becomes of a tensor at its operator: it is observed, or rounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from amanda_tools.arrays import all_but
from amanda_tools.quantization.calibration import moved_average
from amanda_tools.quantization.formula import settings_for, stacked
from amanda_tools.quantization.routines import Rounding

if TYPE_CHECKING:
    from collections.abc import Callable

    import amanda

    from amanda_tools.quantization.routines import Axes
    from amanda_tools.quantization.tensors import Known


@dataclass
class Treatment:
    """A treatment inserts what one tensor needs; this one inserts nothing.

    Attributes:
        known: the tensor.
    """

    known: Known

    def insert(self, ctx: amanda.OpContext) -> None:
        """Insert it at the operator."""

    def insert_on_gradient(self, ctx: amanda.OpContext) -> None:
        """Insert it at the operator's gradient."""

    @property
    def index(self) -> list[int]:
        """Return which of the operator's inputs the tensor is."""
        return [self.known.operand.position]

    def rounding(self, ctx: amanda.OpContext) -> Rounding:
        """Return the routines that round the tensor."""
        return Rounding(self.known.formula, ctx.xp, ctx.describe)

    def settings(self, ctx: amanda.OpContext) -> Any:
        """Return the tensor's settings as an argument of a routine, whose values may change.

        As long as they are not known, they are those for a range of nothing but zero.
        """
        settings = self.known.settings
        if settings is None:
            settings = settings_for(self.known.formula, 0, 0)
        variable = ctx.variable(f"settings of {self.known.operand.name}", settings)
        variable.assign(settings)
        return variable


@dataclass
class ByOwnRange(Treatment):
    """This rounds the tensor by the range that it has each time, along axes or as a whole."""

    axes: Axes

    def insert(self, ctx: amanda.OpContext) -> None:
        """Insert it at the operator."""
        routine = self.rounding(ctx).by_own_range
        ctx.insert_before_op(routine, inputs=self.index, pure=True, **self._options(ctx))

    def insert_on_gradient(self, ctx: amanda.OpContext) -> None:
        """Insert it at the operator's gradient."""
        routine, index = self.rounding(ctx).passed_by_own_range, self.index
        ctx.insert_on_grad_inputs(routine, index, with_given=index, pure=True, **self._options(ctx))

    def _options(self, ctx: amanda.OpContext) -> dict[str, Any]:
        name, numbers = self.known.operand.name, self.known.formula.grid.numbers
        variable = ctx.variable(f"numbers of {name}", np.array(numbers, np.float32))
        return {"axes": self.axes, "numbers": variable}


class BySettings(Treatment):
    """This rounds the tensor by settings that are known."""

    def insert(self, ctx: amanda.OpContext) -> None:
        """Insert it at the operator."""
        routine, settings = self.rounding(ctx).by_settings, self.settings(ctx)
        ctx.insert_before_op(routine, inputs=self.index, pure=True, settings=settings)

    def insert_on_gradient(self, ctx: amanda.OpContext) -> None:
        """Insert it at the operator's gradient."""
        routine, index = self.rounding(ctx).passed_by_settings, self.index
        settings = self.settings(ctx)
        ctx.insert_on_grad_inputs(routine, index, with_given=index, pure=True, settings=settings)


@dataclass
class Observed(Treatment):
    """This shows the tensor's values to its observer, and leaves it as it is.

    Attributes:
        seen: called after each execution.
    """

    seen: Callable[[Known], None]

    def insert(self, ctx: amanda.OpContext) -> None:
        """Insert it at the operator."""
        ctx.insert_before_op(self._look, inputs=self.index, numpy=ctx.numpy)

    def _look(self, x: Any, numpy: Any) -> None:
        assert self.known.observer is not None
        self.known.observer.add(numpy(x))
        self.seen(self.known)


@dataclass
class Moving(BySettings):
    """This rounds the tensor by a range that is an average over executions.

    One in which the tensor has infinities, or what is no number, does not count: it would be in all
    averages after it.

    Attributes:
        averaging: how much the last execution counts.
    """

    averaging: np.float32

    def insert(self, ctx: amanda.OpContext) -> None:
        """Insert it at the operator."""
        ctx.insert_before_op(
            self._move,
            inputs=self.index,
            rounding=self.rounding(ctx),
            settings=self.settings(ctx),
            numpy=ctx.numpy,
        )

    def _move(self, x: Any, rounding: Rounding, numpy: Any, settings: Any) -> Any:
        known, info = self.known, rounding.describe(x)
        if info.shape is not None and 0 in info.shape:
            return None
        low, high = (np.float32(numpy(end)) for end in rounding.extent(x, None))
        if np.isfinite([low, high]).all():
            known.average = moved_average(known.average, (low, high), self.averaging)
            known.settings = settings_for(known.formula, *known.average)
            settings.assign(known.settings)
        return None if known.average is None else rounding.by_settings(x, settings)


@dataclass
class Beginning(Treatment):
    """This leaves the tensor as it is for one execution, whose values its settings begin with.

    Attributes:
        began: called after that.
    """

    began: Callable[[], None]

    def insert(self, ctx: amanda.OpContext) -> None:
        """Insert it at the operator."""
        ctx.insert_before_op(self._begin, inputs=self.index, numpy=ctx.numpy)

    def _begin(self, x: Any, numpy: Any) -> None:
        values = numpy(x).astype(np.float32)
        if values.size and np.isfinite(values).all() and self.known.settings is None:
            self.known.formula = self.known.formula.for_values(values)
            self.known.begin(values, None)
            self.began()


@dataclass
class Learning(BySettings):
    """This rounds the tensor by settings that are trained, whenever its gradient was computed.

    A gradient that leads to infinities, or to what is no number, is left out, as optimizers leave
    out steps in which a scaled loss overflows.

    Attributes:
        rate: of learning, by which each gradient of the settings is multiplied.
    """

    rate: float

    def insert_on_gradient(self, ctx: amanda.OpContext) -> None:
        """Insert it at the operator's gradient."""
        ctx.insert_on_grad_inputs(
            self._learn,
            self.index,
            with_given=self.index,
            rounding=self.rounding(ctx),
            settings=self.settings(ctx),
            numpy=ctx.numpy,
        )

    def _learn(self, gradient: Any, x: Any, rounding: Rounding, numpy: Any, settings: Any) -> Any:
        if gradient is None:
            return None
        passed = rounding.passed_by_settings(gradient, x, settings)
        moved = rounding.moved(gradient, x, settings, self.rate)
        found = stacked(tuple(numpy(setting) for setting in moved))
        if np.isfinite(found).all():
            self.known.settings = found
            self.known.error = None  # it was that of the first settings
            settings.assign(found)
        return passed


def axes_of_weight(ctx: amanda.OpContext, known: Known) -> Axes:
    """Return the axes of a weight along which values share a range."""
    shape = ctx.describe(ctx.inputs[known.operand.position]).shape
    return None if shape is None else all_but(known.operand.channel, len(shape))
