"""The tool ``QuantizeAware`` trains a model to do with weights and activations of a few bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from amanda_tools.options import refuse_unused
from amanda_tools.quantization.calibration import check_choice, check_share
from amanda_tools.quantization.formula import Arithmetic, formula_of
from amanda_tools.quantization.quantizing import Quantizing
from amanda_tools.quantization.tensors import Known
from amanda_tools.quantization.treatments import (
    Beginning,
    ByOwnRange,
    BySettings,
    Learning,
    Moving,
    axes_of_weight,
)

if TYPE_CHECKING:
    import os

    import amanda

    from amanda_tools.place import Place
    from amanda_tools.quantization.operands import Operand
    from amanda_tools.quantization.treatments import Treatment


Ranges = Literal["moving", "learned"]


class QuantizeAware(Quantizing):
    """Trains with weights and activations that are rounded to integers of a few bits.

    The model computes with rounded values, and the gradient at these goes straight to the exact
    ones where they were not cut off (the straight-through estimator of Bengio et al., 2013, as used
    by Jacob et al., CVPR 2018). Ranges move along: that of a weight is the one that it has, that of
    an activation an average over executions. Or they are learned: scales by their gradient, as in
    LSQ (Esser et al., "Learned Step Size Quantization", ICLR 2020), with the arithmetic of
    TensorFlow the two ends of a range, as its ``fake_quant_with_min_max_vars`` has them. This tool
    takes the steps of training for them itself, by plain gradient descent, whenever the gradient of
    the operator was computed. What no gradient is computed of, such as the input of a model, keeps
    the range that it began with.

    Args:
        bits: bits of weights, from 2 to 8; 0 leaves them as they are.
        activation_bits: bits of activations, likewise.
        ranges: whether ranges are moving or learned.
        symmetric: whether zero is the integer 0 of weights. A scale that is learned by the
            arithmetic of PyTorch is that of a symmetric range in any case, and of integers from 0
            on where an activation is not negative.
        per_channel: whether each channel of the output has a scale of its own in a weight.
        narrow: leave out the lowest integer.
        averaging: how much the last execution counts in a moving range; by default 0.01.
        learning_rate: the learning rate of learned ranges; by default 0.01.
        arithmetic: the framework whose fake quantization gives the same results, to the bit.
        ops: types of ONNX operators; by default all that multiply, of those that it knows.
        scopes: globs of scopes of operators; all by default.
        ignored: globs of scopes of operators that are left as they are.
        out: a file to write when the scope is left: scales and zero points as JSON, CSV or
            safetensors, or a picture of errors (.svg), by its ending.

    Raises:
        ModuleNotFoundError: the file is one of safetensors, which are not installed.
        OSError: the file cannot be written there.
        ValueError: an option is out of range, or has no effect with the others, or the name of
            the file ends in something else.
    """

    def __init__(
        self,
        bits: int = 8,
        activation_bits: int = 8,
        ranges: Ranges = "moving",
        *,
        symmetric: bool = True,
        per_channel: bool = True,
        narrow: bool = False,
        averaging: float | None = None,
        learning_rate: float | None = None,
        arithmetic: Arithmetic = "torch",
        ops: list[str] | None = None,
        scopes: list[str] | None = None,
        ignored: list[str] | None = None,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(per_channel, ops, scopes, ignored or (), bool(bits), out)
        check_choice("ranges", ranges, Ranges)
        if ranges == "learned":
            refuse_unused("ranges=learned", averaging=averaging)
        else:
            refuse_unused(f"ranges={ranges}", learning_rate=learning_rate)
        averaging = 0.01 if averaging is None else averaging
        learning_rate = 0.01 if learning_rate is None else learning_rate
        check_share("averaging", averaging)
        check_choice("arithmetic", arithmetic, Arithmetic)
        if not bits and not activation_bits:
            raise ValueError("bits=0 and activation_bits=0: there is nothing to quantize")
        if not learning_rate >= 0:
            raise ValueError(f"learning_rate={learning_rate}: it is 0 at least")
        self._bits = {True: bits, False: activation_bits}  # by whether it is a weight
        self._learned = ranges == "learned"
        self._averaging, self._rate = np.float32(averaging), learning_rate
        scales = self._learned and arithmetic == "torch"
        self._formulas = {
            weight: formula_of(
                *(arithmetic, count, scales or (weight and symmetric), narrow),
                constant=weight and per_channel,
            )
            for weight, count in self._bits.items()
            if count
        }

    def freeze(self) -> None:
        """Have ranges stay as they are from now on, in the rest of a training or to evaluate."""
        self._frozen = True
        self.invalidate()

    def _choose(self, operand: Operand, place: Place) -> Known | None:
        formula = self._formulas.get(operand.is_weight)
        if formula is None:
            return None
        return Known(place, operand, formula, self._bits[operand.is_weight])

    def _treatment(self, ctx: amanda.OpContext, known: Known) -> Treatment:
        if known.operand.is_weight:
            return self._of_weight(ctx, known)
        if self._frozen:
            if known.settings is None:
                raise self._without_range(known)
            return BySettings(known)
        if not self._learned:
            return Moving(known, self._averaging)
        if known.settings is None:
            return Beginning(known, self.invalidate)
        return Learning(known, self._rate)

    def _of_weight(self, ctx: amanda.OpContext, known: Known) -> Treatment:
        if not self._learned:
            axes = axes_of_weight(ctx, known)
            return self._for_weight(ctx, known) if self._frozen else ByOwnRange(known, axes)
        if known.settings is None:
            known.begin(ctx.value(known.operand.position), axes_of_weight(ctx, known))
        return BySettings(known) if self._frozen else Learning(known, self._rate)
