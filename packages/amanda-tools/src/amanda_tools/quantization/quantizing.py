"""All tools that quantize share how they choose tensors, and the rows of these."""

from __future__ import annotations

import abc
import re
from typing import TYPE_CHECKING, Any

import amanda

from amanda_tools.computed_weights import ComputedWeights
from amanda_tools.hidden import refuse_hidden, show_lookups
from amanda_tools.left_alone import LeftAlone
from amanda_tools.numbering import Numbering
from amanda_tools.packed_weights import PackedWeights
from amanda_tools.place import Place
from amanda_tools.quantization.copies import copied
from amanda_tools.quantization.files import SavingScales
from amanda_tools.quantization.operands import (
    Operand,
    checked_types,
    is_quantized,
    operands_of,
)
from amanda_tools.quantization.treatments import ByOwnRange, BySettings, Observed, axes_of_weight
from amanda_tools.tables import table_of

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from rich.table import Table

    from amanda_tools.quantization.tensors import Known, QuantizedTensor
    from amanda_tools.quantization.treatments import Treatment


class Quantizing(SavingScales, amanda.Tool):
    """This is a base of tools that quantize what operators multiply with each other.

    Args:
        per_channel: whether each channel of the output has a scale of its own in a weight.
        ops: types of operators.
        scopes: globs of the scopes of operators; None for all.
        ignored: globs of the scopes of operators that are left as they are.
        weights: whether weights are quantized.
        out: a file to write when the scope is left.
    """

    lists_candidates = True  # a model has few of all types that there are

    def __init__(
        self,
        per_channel: bool,
        ops: Sequence[str] | None,
        scopes: Sequence[str] | None,
        ignored: Sequence[str],
        weights: bool,
        out: str | os.PathLike[str] | None,
    ) -> None:
        super().__init__(namespace="onnx")
        self.save_to(out)
        self._per_channel = per_channel
        self._ignored = tuple(ignored)
        self._known: dict[tuple[Place, str], Known] = {}
        self._parameters = Numbering()
        self._frozen = False
        self._computed = ComputedWeights(self, "ignored") if weights else None
        self._integers = LeftAlone(
            self,
            "what is multiplied there are integers of a few bits, as in a model that was quantized "
            "before; run the model as it was ahead of that, or leave it out by ignored=",
        )
        types = checked_types(ops)
        self.add_inst_for_op(self._analyze, ops=types, scopes=scopes)
        self.add_inst_for_gradient(self._analyze_gradient, ops=types, scopes=scopes)
        show_lookups(self)
        refuse_hidden(self, types, scopes, "ignored", self._ignored)
        self._packed = PackedWeights(self, types, scopes, "ignored", self._ignored)

    def on_exit(self) -> None:
        """Bring the file up to date, and warn of what is not quantized."""
        super().on_exit()
        self._integers.warn()
        self._packed.warn()
        if self._computed is not None:
            self._computed.warn()

    def rows(self) -> list[QuantizedTensor]:
        """Return the tensors, in the order in which their operators first ran."""
        return [known.row() for known in self._tensors()]

    def found(self) -> str:
        """Tell how many tensors there are of each kind, and of how many operators."""
        tensors = self._tensors()
        weights = sum(known.operand.is_weight for known in tensors)
        operators = len({known.place for known in tensors})
        activations = len(tensors) - weights
        return f"{weights:,} weights and {activations:,} activations of {operators:,} operators"

    def report(self) -> list[Table | str]:
        """Show a line for each tensor, and how many there are."""
        name = re.sub(r"\B(?=[A-Z])", "_", type(self).__name__).lower()  # as the command has it
        return [_table(self.rows()), self.and_saved(f"{name}: {self.found()}")]

    def make_permanent(self, model: Any) -> list[str]:
        """Write the rounded weights into a model, as :meth:`amanda.Tool.make_permanent` does.

        Raises:
            UnsupportedError: activations are rounded, too, which no parameter can hold.
        """
        activation = next((k for k in self._tensors() if not k.operand.is_weight), None)
        if activation is not None:
            raise amanda.UnsupportedError(
                f"{self.name}: {activation.title} is an activation, and rounded at each "
                "execution, which no parameter can hold; run the model under the tool, or make a "
                "tool permanent that rounds weights alone, and run the model under one with "
                "bits=0, which rounds activations alone"
            )
        return super().make_permanent(model)

    @abc.abstractmethod
    def _choose(self, operand: Operand, place: Place) -> Known | None:
        """Choose how a tensor is to be quantized; None if it is not."""

    @abc.abstractmethod
    def _treatment(self, ctx: amanda.OpContext, known: Known) -> Treatment:
        """Return what is to be done with a tensor of an operator."""

    def _analyze(self, ctx: amanda.OpContext) -> None:
        place = Place.at(ctx)
        treatments: list[Treatment] = []
        operands = operands_of(ctx, self._ignored)
        if operands and self._computed is not None:
            self._computed.note(ctx)
        if not operands and is_quantized(ctx, self._ignored):
            self._integers.note(ctx)
        for operand in operands:
            if not ctx.describe(ctx.inputs[operand.position]).is_dense:
                raise amanda.UnsupportedError(
                    f"{self.name}: {ctx.op.named} is given {operand.name} as a sparse tensor, "
                    "which is not rounded; give it a dense one, or leave it out by ignored="
                )
            if not self._per_channel:
                operand = operand._replace(channel=None)
            known = self._known.get((place, operand.name)) or self._met(ctx, operand, place)
            if known is not None:
                known.operand = operand
                self._known[place, operand.name] = known
                treatments.append(self._treatment(ctx, known))
        treatments = [t for t in treatments if isinstance(t, Observed)] or treatments
        state, kinds = ctx.state(self), [type(treatment) for treatment in treatments]
        if state.get("kinds", kinds) != kinds:  # what was inserted at the gradient goes with others
            self.invalidate()
        state["treatments"], state["kinds"] = treatments, kinds
        for treatment in treatments:
            treatment.insert(ctx)

    def _analyze_gradient(self, ctx: amanda.OpContext) -> None:
        for treatment in ctx.state(self).get("treatments", ()):
            treatment.insert_on_gradient(ctx)

    def _met(self, ctx: amanda.OpContext, operand: Operand, place: Place) -> Known | None:
        """Return what is known of a tensor: it is new, or one of another function of the model."""
        known = self._choose(operand, place)
        weight = ctx.weight_index
        parameter = None if weight is None else ctx.parameter(weight)
        if known is not None and parameter is not None:
            known.parameter = self._parameters.of(parameter.source)
        if known is None:
            return None
        return copied(known, self._tensors(), self._frozen) or known

    def _tensors(self) -> list[Known]:
        """Return what is known of the tensors, each once."""
        return list({id(known): known for known in self._known.values()}.values())

    def _for_weight(self, ctx: amanda.OpContext, known: Known) -> Treatment:
        """Round by the range of the value now or, where that is unknown, at each execution."""
        axes = axes_of_weight(ctx, known)
        try:
            value = ctx.value(known.operand.position)
        except amanda.ValueUnavailableError:
            return ByOwnRange(known, axes)
        if value.size:
            known.set_by(value, axes)
        return BySettings(known) if value.size else ByOwnRange(known, axes)

    def _without_range(self, known: Known) -> amanda.UnsupportedError:
        return amanda.UnsupportedError(
            f"{self.name}: {known.title} ran for the first time after freeze(), and has no range; "
            "run the model ahead of that on data with which it runs, by the same function if it is "
            "a graph, or have its scope in ignored="
        )


def _table(rows: Sequence[QuantizedTensor]) -> Table:
    titles = ("Tensor", "Input", "Bits", "Scales", "From", "To", "Error")
    return table_of(
        titles,
        [
            (
                *(row.id, row.input, row.bits),
                "each time" if row.scale is None else len(row.scale),
                None if row.minimum is None else min(row.minimum),
                None if row.maximum is None else max(row.maximum),
                "" if row.error is None else f"{row.error:.2%}",
            )
            for row in rows
        ],
    )
