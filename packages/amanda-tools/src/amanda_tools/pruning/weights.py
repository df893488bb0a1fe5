"""Weights are pruned by masks that stay from one execution to the next."""

from __future__ import annotations

import abc
import warnings
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import amanda
import numpy as np
from amanda_contextmap import products

from amanda_tools.computed_weights import ComputedWeights
from amanda_tools.hidden import refuse_hidden, show_lookups
from amanda_tools.numbering import Numbering, part_of
from amanda_tools.packed_weights import PackedWeights
from amanda_tools.pruning.copies import Copies
from amanda_tools.pruning.layers import PrunedLayer, Sparsity, share

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Sequence

    from amanda_tools.pruning.schedule import Schedule

    Array = np.ndarray[Any, Any]

# The weights of recurrent layers that run as one operator are left alone.
_RECURRENT = ("LSTM", "GRU", "RNN")


def _axes_of_outputs() -> dict[str, dict[str, int]]:
    """Find the operators with weights, which inputs these may be, and the axes there of outputs."""
    return {
        type: axes
        for type, factors in products().items()
        if type not in _RECURRENT
        and (axes := {role: f.channel for role, f in factors.items() if f.channel is not None})
    }


class _Layout(NamedTuple):
    """A layout tells how the outputs of a weight are brought ahead of its inputs.

    Attributes:
        order: the operator's axes in the order in which they lie then.
        outputs: how many of them are those of outputs, which become one: each matrix of a batch
            has outputs of its own.
    """

    order: Sequence[int]
    outputs: int

    @classmethod
    def of(cls, ctx: amanda.OpContext, index: int, channel: int) -> _Layout:
        """Return that of an operator's input, whose outputs lie along an axis.

        A negative one is one of the last two, and that of the inputs is the other; else these are
        the first two.
        """
        rank = len(ctx.describe(ctx.inputs[index]).shape or ())
        if rank == 1:  # a vector has inputs alone
            return cls([0], 0)
        out, into = channel % rank, (-3 - channel if channel < 0 else 1 - channel) % rank
        rest = [axis for axis in range(rank) if axis not in (out, into)]
        if channel < 0:  # a matrix, or several of them
            return cls([*rest, out, into], rank - 1)
        return cls([out, into, *rest], 1)

    def outputs_first(self, array: Array) -> Array:
        """Return the operator's input as (outputs, inputs, ...).

        Integers are widened: the least of 8 bits, -128, has no magnitude among them.
        """
        wide = array.astype(np.int64) if array.dtype.kind == "i" else array
        turned = wide.transpose(self.order)
        outputs, rest = turned.shape[: self.outputs], turned.shape[self.outputs :]
        matrix: Array = turned.reshape(prod(outputs), *rest)
        return matrix

    def as_given(self, array: Array, shape: Sequence[int]) -> Array:
        """Return what has outputs first in the shape in which the operator is given it."""
        turned = array.reshape([shape[axis] for axis in self.order])
        given: Array = np.ascontiguousarray(turned.transpose(np.argsort(self.order)))
        return given


class _Layer:
    """This is a pruned parameter, by what stays of it when the model is gone.

    Attributes:
        weight: its value when its mask was last chosen, outputs first.
        mask: whether each element is kept, outputs first.
        copies: the masks that routines are given.
    """

    def __init__(self, operator: amanda.Operator, weight: Array, layout: _Layout) -> None:
        self.operator = operator
        self.shape = weight.shape
        self.layout = layout
        self.weight = layout.outputs_first(weight)
        self.mask = np.ones(self.weight.shape, bool)
        self.copies = Copies()

    def as_given(self) -> Array:
        """Return the mask in the layout in which the operator is given the weight."""
        return self.layout.as_given(self.mask, self.shape)

    def row(self) -> PrunedLayer:
        """Return what there is to say of the layer."""
        operator, mask = self.operator, self.as_given()
        zeros = mask.size - int(mask.sum())
        return PrunedLayer(
            *(operator.id, operator.scope, operator.type, list(mask.shape)),
            *(mask.size, zeros, share(zeros, mask.size)),
        )


class WeightPruning(Sparsity[PrunedLayer], amanda.Tool):
    """This is a base of tools that mask weights of convolutions and linear layers.

    A weight is masked wherever an operator is given it, and gets no gradient where it is pruned.
    Masks are chosen when an operator first runs, by what the weight is then, and by :meth:`step`
    at those iterations that the schedule names. A parameter of several operators has one mask; one
    that is split, or transposed for some of them, has one for each form.

    Args:
        schedule: how much is pruned when.
        budget: ``layer`` for this sparsity in each layer, ``global`` for that of all together: what
            is pruned are the least of all. That is settled once all of them have run.
        scopes: globs of the scopes whose layers are pruned, all by default.
        frozen: whether gradients are masked, too; otherwise what is pruned goes on learning, and
            may come back.
        out: a file to write when the scope is left, a row for each layer, as JSON or CSV, or a
            picture (.svg), by its ending.

    Raises:
        OSError: it cannot be written there.
        ValueError: there is no such schedule, or the name of the file ends in something else.
    """

    row_type = PrunedLayer
    merges = MappingProxyType({"zeros": "mean", "sparsity": "mean"})
    lists_candidates = True

    def __init__(
        self,
        schedule: Schedule,
        budget: Literal["layer", "global"],
        scopes: Sequence[str] | None,
        frozen: bool,
        out: str | os.PathLike[str] | None,
    ) -> None:
        if budget not in ("layer", "global"):
            raise ValueError(f"budget is 'layer' or 'global', not {budget!r}")
        super().__init__(namespace="onnx")
        self.save_to(out)
        self.schedule = schedule
        self.iteration = 0
        self._budget = budget
        self._layers: dict[Hashable, _Layer] = {}
        self._numbers = Numbering()
        self._computed = ComputedWeights(self)
        self._taking: dict[Hashable, Array] | None = None
        self._axes_of_outputs = types = _axes_of_outputs()
        self.add_inst_for_op(self._analyze, ops=types, scopes=scopes)
        refuse_hidden(self, types, scopes)
        self._packed = PackedWeights(self, types, scopes)
        show_lookups(self)
        if frozen:
            self.add_inst_for_gradient(self._analyze_gradient, ops=types, scopes=scopes)

    @abc.abstractmethod
    def masks(self, weights: Sequence[Array], sparsity: float) -> Sequence[Array]:
        """Return the masks of layers that share a budget, each (outputs, inputs, ...)."""

    def prunes(self, weight: Array) -> bool:
        """Tell whether there is a mask for a weight (outputs, inputs, ...)."""
        return True

    def step(self, model: Any) -> None:
        """Say that an iteration has ended, and choose the masks that are due at the next one.

        Args:
            model: what holds the parameters, as :meth:`amanda.Tool.make_permanent` takes it.
        """
        self.iteration += 1
        if self.schedule.is_due(self.iteration):
            self.prune(model)

    def prune(self, model: Any) -> None:
        """Choose masks anew, by what the weights of a model that has run are now."""
        self._taking = {}
        try:
            self.run_on_parameters(model)
            for taken, weight in self._taking.items():
                layer = self._layers[taken]
                layer.weight = layer.layout.outputs_first(weight)
        finally:
            self._taking = None
        self._choose(list(self._layers.values()))

    def rows(self) -> list[PrunedLayer]:
        """Return the layers, in the order in which they first ran."""
        return [layer.row() for layer in self._layers.values()]

    def on_exit(self) -> None:
        """Bring the file up to date, and warn of what is left alone or has not been called."""
        super().on_exit()
        self._computed.warn()
        self._packed.warn()
        if self._layers and self.iteration == 0 < self.schedule.end:
            warnings.warn(
                f"{self.name} is to prune from iteration {self.schedule.begin} to "
                f"{self.schedule.end}, and was told of none; call step(model) after each",
                amanda.AmandaWarning,
                stacklevel=2,
            )

    def _choose(self, layers: Sequence[_Layer]) -> None:
        together = [layers] if self._budget == "global" else [[layer] for layer in layers]
        for group in together:
            masks = self.masks([layer.weight for layer in group], self.sparsity)
            for layer, mask in zip(group, masks, strict=True):
                layer.mask = mask
                layer.copies.assign(layer.as_given())

    @property
    def sparsity(self) -> float:
        """Return the sparsity that the schedule has now."""
        return self.schedule.at(self.iteration)

    def _analyze(self, ctx: amanda.OpContext) -> None:
        if ctx.driver.computes_parameter(ctx.op):
            return
        index, channel, parameter = ctx.weight_index, None, None
        if index is not None:
            channel = self._axes_of_outputs[ctx.op.type].get(ctx.input_names[index])
            parameter = None if channel is None else ctx.parameter(index)
        if index is None or channel is None or parameter is None:
            self._computed.note(ctx)
            return
        taken = self._numbers.of(parameter.source), part_of(ctx, index)
        if taken not in self._layers:
            layer = _Layer(ctx.op, ctx.value(index), _Layout.of(ctx, index, channel))
            if not self.prunes(layer.weight):
                return
            self._layers[taken] = layer
            self._choose(list(self._layers.values()) if self._budget == "global" else [layer])
        layer = self._layers[taken]
        variable = layer.copies.of(ctx.variable("mask", layer.as_given()))
        ctx.state(self)["mask"] = variable
        ctx.insert_before_op(
            self._masked,
            inputs=[index],
            pure=True,
            mask=variable,
            xp=ctx.xp,
            taken=taken,
            numpy=ctx.numpy,
        )

    def _analyze_gradient(self, ctx: amanda.OpContext) -> None:
        variable, index = ctx.state(self).get("mask"), ctx.weight_index
        if variable is not None and index is not None:
            ctx.insert_on_grad_inputs(
                self._kept, inputs=[index], pure=True, mask=variable, xp=ctx.xp
            )

    def _masked(self, weight: Any, mask: Any, xp: Any, taken: Hashable, numpy: Any) -> Any:
        if self._taking is not None:
            self._taking[taken] = numpy(weight)
        return self._kept(weight, mask, xp)

    @staticmethod
    def _kept(tensor: Any, mask: Any, xp: Any) -> Any:
        return xp.where(mask, tensor, xp.zeros_like(tensor))


def least(scores: Array, sizes: Array, sparsity: float) -> Array:
    """Mark the units to prune: those of the least scores, the first ones of equal ones.

    Args:
        scores: what each unit is worth.
        sizes: how many elements it has.
        sparsity: the share of all elements that the units that are pruned come nearest to.
    """
    if (sizes == sizes[:1]).all():
        return _least_of(scores, round(sparsity * len(sizes)))
    order = np.argsort(scores, kind="stable")
    taken = np.cumsum(sizes[order])
    count = int((taken - sizes[order] / 2 < sparsity * taken[-1]).sum())
    pruned = np.zeros(len(sizes), bool)
    pruned[order[:count]] = True
    return pruned


def _least_of(scores: Array, count: int) -> Array:
    """Mark so many of the least, the first ones of equal ones, without sorting all of them."""
    if count == 0:
        return np.zeros(len(scores), bool)
    scores = np.where(np.isnan(scores), np.inf, scores)
    limit = np.partition(scores, count - 1)[count - 1]
    pruned: Array = scores < limit
    pruned[np.flatnonzero(scores == limit)[: count - int(pruned.sum())]] = True
    return pruned


def without_least(
    weights: Sequence[Array], labels: Sequence[Array], sparsity: float
) -> list[Array]:
    """Return masks of layers without the units that are worth least of all, by mean magnitude.

    Args:
        weights: one for each layer.
        labels: for each of its elements the unit that it is of, from 0 on; -1 for one of none.
        sparsity: the share of the elements that are of a unit.
    """
    pairs = [
        (np.abs(w[label >= 0]), label[label >= 0]) for w, label in zip(weights, labels, strict=True)
    ]
    counts = [np.bincount(label) for _, label in pairs]
    sums = [np.bincount(label, magnitude) for magnitude, label in pairs]
    sizes = np.concatenate(counts)
    pruned = least(np.concatenate(sums) / np.maximum(sizes, 1), sizes, sparsity)
    ends = np.cumsum([len(count) for count in counts])
    each = np.split(pruned, ends[:-1])
    return [~np.append(p, True)[label] for p, label in zip(each, labels, strict=True)]
