"""The tool ``Quantize`` rounds weights, and activations by given or by found ranges."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Literal

from amanda_tools.interrupts import uninterrupted
from amanda_tools.options import refuse_unused
from amanda_tools.progress import progress
from amanda_tools.quantization.calibration import Method, Observer, check_choice, check_share
from amanda_tools.quantization.formula import Arithmetic, formula_of
from amanda_tools.quantization.quantizing import Quantizing
from amanda_tools.quantization.tensors import Known
from amanda_tools.quantization.treatments import ByOwnRange, BySettings, Observed

if TYPE_CHECKING:
    import os

    import amanda

    from amanda_tools.place import Place
    from amanda_tools.quantization.operands import Operand
    from amanda_tools.quantization.treatments import Treatment

Activations = Literal["none", "dynamic", "per_token", "minmax", "moving", "percentile", "mse"]


class Quantize(Quantizing):
    """Computes with weights, and activations, that are rounded to integers of a few bits.

    It takes in what operators multiply, however a model calls them: the operands of linear layers,
    convolutions, recurrent layers, products of matrices and attention. The rounded values are those
    that an integer kernel would compute with (Jacob et al., "Quantization and Training of Neural
    Networks for Efficient Integer-Arithmetic-Only Inference", CVPR 2018). Weights get their scales
    from the values that they have when a scope is entered. Activations that need calibration are
    observed, and nothing at their operators is rounded, until :meth:`freeze` or so many executions.

    Gradients pass straight through, but for those of values that were cut off.

    Args:
        bits: bits of weights, from 2 to 8; 0 leaves them as they are.
        activations: how the ranges of activations are chosen: none are quantized, by the range of
            each execution (dynamic), of each vector that is summed up (per_token), or calibrated
            (minmax, moving, percentile, mse).
        activation_bits: bits of activations, from 2 to 8; by default 8.
        symmetric: whether zero is the integer 0 of weights.
        symmetric_activations: whether zero is the integer 0 of activations; by default it is not.
        per_channel: whether each channel of the output has a scale of its own in a weight.
        narrow: leave out the lowest integer.
        calibrate: how many executions of each operator it observes; all until freeze() if None.
        percentile: percent of the values that are in the range of the method of that name; by
            default 99.99.
        averaging: how much the last execution counts in the ranges of the method moving; by
            default 0.01.
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
        activations: Activations = "none",
        *,
        activation_bits: int | None = None,
        symmetric: bool = True,
        symmetric_activations: bool | None = None,
        per_channel: bool = True,
        narrow: bool = False,
        calibrate: int | None = None,
        percentile: float | None = None,
        averaging: float | None = None,
        arithmetic: Arithmetic = "torch",
        ops: list[str] | None = None,
        scopes: list[str] | None = None,
        ignored: list[str] | None = None,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(per_channel, ops, scopes, ignored or (), bool(bits), out)
        check_choice("activations", activations, Activations)
        if calibrate is not None and calibrate < 1:
            raise ValueError(f"calibrate={calibrate}: an operator is calibrated by one execution")
        if calibrate is not None and activations not in typing.get_args(Method):
            raise ValueError(f"calibrate={calibrate}: with activations={activations} there is none")
        if not bits and activations == "none":
            raise ValueError("bits=0 and activations=none: there is nothing to quantize")
        chosen = f"activations={activations}"
        if activations != "percentile":
            refuse_unused(chosen, percentile=percentile)
        if activations != "moving":
            refuse_unused(chosen, averaging=averaging)
        if activations == "none":
            unused = {"activation_bits": activation_bits}
            refuse_unused(chosen, **unused, symmetric_activations=symmetric_activations)
        percentile = 99.99 if percentile is None else percentile
        if not 0 < percentile <= 100:
            raise ValueError(f"percentile={percentile}: it is above 0, and 100 at most")
        averaging = 0.01 if averaging is None else averaging
        check_share("averaging", averaging)
        check_choice("arithmetic", arithmetic, Arithmetic)
        activation_bits = 8 if activation_bits is None else activation_bits
        self._bits, self._activation_bits = bits, activation_bits
        self._activations = activations
        self._per_token = activations == "per_token"
        self._calibrates = activations in typing.get_args(Method)
        self._calibrate = calibrate
        self._percentile, self._averaging = percentile, averaging
        self._weight = formula_of(arithmetic, bits, symmetric, narrow, True) if bits else None
        self._activation = formula_of(
            *(arithmetic, activation_bits, bool(symmetric_activations), narrow),
            constant=self._calibrates,
        )

    def freeze(self) -> None:
        """End calibration: ranges stay as they are, and what was observed is rounded from now on.

        Raises:
            RuntimeError: nothing was observed yet.
        """
        observed = [known for known in self._tensors() if known.observer is not None]
        if self._calibrates and not observed:
            raise RuntimeError(
                f"{self.name}: no activation was observed; run the model on some data in a scope "
                "of the tool, then freeze()"
            )
        chosen = []
        with progress(f"{self.name}: ranges", len(observed)) as step:
            for known in observed:
                chosen.append(known.settled())
                step()
        with uninterrupted():  # Ctrl-C ahead of this leaves all as it was
            self._frozen = True
            for known, (settings, error) in zip(observed, chosen, strict=True):
                known.settings, known.error = settings, error
            self.invalidate()

    def found(self) -> str:
        """Tell how many tensors there are, and how many of them are still observed."""
        known = self._tensors()
        waiting = sum(each.observer is not None and each.settings is None for each in known)
        note = f", {waiting:,} of them observed and not rounded before freeze()"
        if self._calibrate is None:
            note += "; calibrate=N ends that after so many executions"
        return super().found() + (note if waiting else "")

    def _choose(self, operand: Operand, place: Place) -> Known | None:
        if operand.is_weight:
            weight = self._weight
            return None if weight is None else Known(place, operand, weight, self._bits)
        if self._activations == "none":
            return None
        known = Known(place, operand, self._activation, self._activation_bits)
        if self._calibrates:
            method: Method = self._activations  # type: ignore[assignment]
            known.observer = Observer(method, self._percentile, self._averaging)
        return known

    def _treatment(self, ctx: amanda.OpContext, known: Known) -> Treatment:
        if known.operand.is_weight:
            return self._for_weight(ctx, known)
        if known.observer is None:
            summed = known.operand.summed
            return ByOwnRange(known, None if summed is None or not self._per_token else (summed,))
        if known.settings is not None:
            return BySettings(known)
        if self._frozen:
            raise self._without_range(known)
        return Observed(known, self._seen)

    def _seen(self, known: Known) -> None:
        assert known.observer is not None
        if self._calibrate is not None and known.observer.executions >= self._calibrate:
            known.settle()  # again at each further turn of a loop
            self.invalidate()
