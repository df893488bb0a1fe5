"""One rule for each kind of operator tells which synapses carry its active outputs.

A synapse is one addend of an output: a weight times an input for a convolution or a linear layer,
an input for a sum or an average. Those that carry an output are the fewest whose sum reaches a
share of it, the largest first. Where an output has one input alone, as in an activation function,
that carries it. All tensors are NumPy arrays of one example, with axes as ONNX has them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Array: TypeAlias = np.ndarray[Any, Any]

_AT_ONCE = 1 << 20  # addends that are looked at together
_ROUNDING = 1e-12


class Ran(NamedTuple):
    """This is one example of one execution of an operator.

    Attributes:
        inputs: its inputs; those that are no data (weights) are of all examples.
        outputs: the shapes of its outputs.
        attrs: its attributes.
        data: the indices of the inputs that flow through it.
    """

    inputs: Sequence[Array]
    outputs: Sequence[tuple[int, ...]]
    attrs: Mapping[str, Any]
    data: Sequence[int]


class Carried(NamedTuple):
    """This is what carries the active outputs of an operator.

    Attributes:
        inputs: for each input that flows through it, by index, which elements are active.
        synapses: for each output and each of its addends, whether that carries it; None where an
            output has no choice.
    """

    inputs: Mapping[int, Array]
    synapses: Array | None = None


Rule: TypeAlias = "Callable[[Ran, Sequence[Array], float], Carried]"


def carrying(addends: Array, share: float) -> Array:
    """Mark, in each row of addends, the fewest whose sum reaches a share of the row's sum.

    Where that is negative, the sum is to be as negative; where it is 0, none are needed.
    """
    total = addends.sum(axis=1)
    toward = addends * np.sign(total)[:, None]
    order = np.argsort(-toward, axis=1, kind="stable")
    reached = np.cumsum(np.take_along_axis(toward, order, axis=1), axis=1)
    needed = (share * np.abs(total) * (1 - _ROUNDING))[:, None]
    before = np.concatenate([np.zeros_like(needed), reached[:, :-1]], axis=1)
    taken = (before < needed) & (total != 0)[:, None]
    found = np.zeros(addends.shape, bool)
    np.put_along_axis(found, order, taken, axis=1)
    return found


# Weighted sums


def linear(ran: Ran, active: Sequence[Array], share: float) -> Carried:
    """Follow a product with a matrix (out, in)."""
    x, weight = ran.inputs[0], ran.inputs[1].astype(np.float64)
    rows = x.reshape(-1, x.shape[-1]).astype(np.float64)
    outputs = active[0].reshape(len(rows), len(weight))
    synapses = np.zeros((*outputs.shape, rows.shape[1]), bool)
    for at, neurons in _some(np.nonzero(outputs), rows.shape[1]):
        synapses[at, neurons] = carrying(rows[at] * weight[neurons], share)
    return Carried({0: synapses.any(axis=1).reshape(x.shape)}, synapses)


def convolution(ran: Ran, active: Sequence[Array], share: float) -> Carried:
    """Follow a convolution, with groups or without."""
    weight, groups = ran.inputs[1].astype(np.float64), ran.attrs.get("group", 1)
    windows = _Windows(ran, weight.shape[2:])
    count, each = len(weight), weight.shape[1]
    synapses = np.zeros((count, math.prod(windows.outputs), math.prod(weight.shape[1:])), bool)
    outputs = active[0].reshape(count, -1)
    for neurons, at in _some(np.nonzero(outputs), synapses.shape[2]):
        channels = (neurons // (count // groups) * each)[:, None] + np.arange(each)
        places = windows.places[at]
        addends = windows.padded[channels[:, :, None], places[:, None, :]]
        addends = (addends * weight.reshape(count, each, -1)[neurons]).reshape(len(at), -1)
        chosen = carrying(addends, share)
        synapses[neurons, at] = chosen
        windows.mark(channels, places, chosen.reshape(len(at), each, -1))
    return Carried({0: windows.marked()}, synapses)


# Pooling and reductions


def largest(ran: Ran, active: Sequence[Array], share: float) -> Carried:
    """Follow a maximum in windows: the first of the largest carries it."""
    return _pooled(ran, active, lambda values: _one_hot(values.argmax(axis=1), values), -np.inf)


def average(ran: Ran, active: Sequence[Array], share: float) -> Carried:
    """Follow an average in windows."""
    return _pooled(ran, active, lambda values: carrying(values, share), 0)


def over_space(rule: Callable[[Array, float], Array]) -> Rule:
    """Make the rule for a reduction over all axes of space."""

    def reduced(ran: Ran, active: Sequence[Array], share: float) -> Carried:
        axes = tuple(range(1, ran.inputs[0].ndim))
        return _reduced(ran.inputs[0], axes, active[0], rule, share)

    return reduced


def over_axes(rule: Callable[[Array, float], Array]) -> Rule:
    """Make the rule for a reduction over the axes given, or all; the first is that of examples."""

    def reduced(ran: Ran, active: Sequence[Array], share: float) -> Carried:
        x = ran.inputs[0]
        given = ran.attrs.get("axes")
        axes = range(1, x.ndim + 1) if given is None else np.atleast_1d(given)
        return _reduced(x, tuple(int(axis) - 1 for axis in axes), active[0], rule, share)

    return reduced


def first_largest(values: Array, share: float) -> Array:
    """Mark the first of the largest values of each row."""
    return _one_hot(values.argmax(axis=1), values)


# One input for each output


def one_to_one(ran: Ran, active: Sequence[Array], share: float) -> Carried:
    """Follow an operator whose outputs come from the same places of its first input."""
    return Carried({0: active[0].reshape(ran.inputs[0].shape)})


def product(ran: Ran, active: Sequence[Array], share: float) -> Carried:
    """Follow a product: all factors that flow through it, of the shape of the output, carry it."""
    return Carried(dict.fromkeys(_of_shape(ran, ran.outputs[0]), active[0]))


def addition(ran: Ran, active: Sequence[Array], share: float) -> Carried:
    """Follow a sum of what flows through it, as in a residual connection, or of an offset."""
    return _sum(ran, active, share, 1)


def subtraction(ran: Ran, active: Sequence[Array], share: float) -> Carried:
    """Follow a difference, of which both sides may flow through it."""
    return _sum(ran, active, share, -1)


def transposed(ran: Ran, active: Sequence[Array], share: float) -> Carried:
    """Follow a permutation of axes; that of examples stays."""
    order = [axis - 1 for axis in ran.attrs["perm"] if axis]
    return Carried({0: active[0].transpose(np.argsort(order))})


def concatenated(ran: Ran, active: Sequence[Array], share: float) -> Carried:
    """Follow a concatenation."""
    axis = ran.attrs["axis"] - 1
    ends = np.cumsum([x.shape[axis] for x in ran.inputs])[:-1]
    return Carried(dict(enumerate(np.split(active[0], ends, axis=axis))))


def divided(ran: Ran, active: Sequence[Array], share: float) -> Carried:
    """Follow a split, whose outputs one after the other are the input."""
    return Carried({0: np.concatenate(active, axis=ran.attrs["axis"] - 1)})


def padded(ran: Ran, active: Sequence[Array], share: float) -> Carried:
    """Follow padding: the input is the inner part of the output."""
    pads, shape = ran.attrs["pads"], ran.inputs[0].shape
    first = pads[1 : 1 + len(shape)]
    return Carried(
        {0: active[0][tuple(slice(p, p + n) for p, n in zip(first, shape, strict=True))]}
    )


RULES: Mapping[str, Rule] = {
    "Conv": convolution,
    "Gemm": linear,
    "MaxPool": largest,
    "AveragePool": average,
    "GlobalMaxPool": over_space(first_largest),
    "GlobalAveragePool": over_space(carrying),
    "ReduceMax": over_axes(first_largest),
    "ReduceMean": over_axes(carrying),
    "ReduceSum": over_axes(carrying),
    "Add": addition,
    "Sub": subtraction,
    "Mul": product,
    "Div": product,
    "Transpose": transposed,
    "Concat": concatenated,
    "Split": divided,
    "Pad": padded,
    **dict.fromkeys(
        [
            *("Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Gelu", "Sigmoid", "Tanh"),
            *("HardSigmoid", "HardSwish", "Swish", "Mish", "Softplus", "Softsign", "Clip"),
            *("Softmax", "LogSoftmax", "Identity", "Cast", "Dropout", "Neg", "Exp", "Sqrt"),
            *("BatchNormalization", "LayerNormalization", "InstanceNormalization"),
            *("GroupNormalization", "RMSNormalization", "LRN"),
            *("Reshape", "Flatten", "Squeeze", "Unsqueeze"),
        ],
        one_to_one,
    ),
}


class _Windows:
    """These windows slide over the axes of space of one example (channels, ...).

    Attributes:
        outputs: how many there are along each axis.
        padded: (channels, places), with padding.
        places: for each window, the places that it has.
    """

    def __init__(self, ran: Ran, kernel: Sequence[int], padding: float = 0) -> None:
        x, attrs, rank = ran.inputs[0], ran.attrs, len(kernel)
        steps = list(attrs.get("strides") or [1] * rank)
        dilations = list(attrs.get("dilations") or [1] * rank)
        self.outputs = ran.outputs[0][1:]
        before = self._before(x.shape[1:], attrs, kernel, steps, dilations)
        sizes = [
            max(first + size, (count - 1) * step + (k - 1) * d + 1)
            for first, size, count, step, k, d in zip(
                before, x.shape[1:], self.outputs, steps, kernel, dilations, strict=True
            )
        ]
        whole = np.full((len(x), *sizes), padding, np.float64)
        self._inner = (
            slice(None),
            *(slice(b, b + n) for b, n in zip(before, x.shape[1:], strict=True)),
        )
        whole[self._inner] = x
        self._shape = whole.shape
        self.padded = whole.reshape(len(x), -1)
        index = np.arange(math.prod(sizes)).reshape(sizes)
        starts = np.ix_(*(np.arange(n) * s for n, s in zip(self.outputs, steps, strict=True)))
        offsets = np.ix_(*(np.arange(k) * d for k, d in zip(kernel, dilations, strict=True)))
        self.places = index[starts].reshape(-1, 1) + index[offsets].reshape(1, -1)
        self._marked = np.zeros(self.padded.shape, bool)

    def mark(self, channels: Array, places: Array, chosen: Array) -> None:
        """Take note of what is active: (windows, channels, places of a window)."""
        which, channel, place = np.nonzero(chosen)
        self._marked[channels[which, channel], places[which, place]] = True

    def marked(self) -> Array:
        """Return the active elements of the example."""
        marked: Array = self._marked.reshape(self._shape)[self._inner]
        return marked

    def _before(
        self,
        sizes: Sequence[int],
        attrs: Mapping[str, Any],
        kernel: Sequence[int],
        steps: Sequence[int],
        dilations: Sequence[int],
    ) -> list[int]:
        """Return the padding ahead of each axis."""
        if attrs.get("pads") is not None:
            return list(attrs["pads"][: len(kernel)])
        totals = [
            max((count - 1) * step + (k - 1) * d + 1 - size, 0)
            for count, step, k, d, size in zip(
                self.outputs, steps, kernel, dilations, sizes, strict=True
            )
        ]
        lower = attrs.get("auto_pad") == "SAME_LOWER"
        return [(total + lower) // 2 for total in totals]


def _pooled(
    ran: Ran, active: Sequence[Array], choose: Callable[[Array], Array], padding: float
) -> Carried:
    kernel = ran.attrs["kernel_shape"]
    windows = _Windows(ran, kernel, padding)
    outputs = active[0].reshape(len(ran.inputs[0]), -1)
    synapses = np.zeros((*outputs.shape, math.prod(kernel)), bool)
    for channels, at in _some(np.nonzero(outputs), synapses.shape[2]):
        places = windows.places[at]
        chosen = choose(windows.padded[channels[:, None], places])
        synapses[channels, at] = chosen
        windows.mark(channels[:, None], places, chosen[:, None, :])
    return Carried({0: windows.marked()}, synapses)


def _reduced(
    x: Array,
    axes: tuple[int, ...],
    active: Array,
    rule: Callable[[Array, float], Array],
    share: float,
) -> Carried:
    axes = tuple(axis % x.ndim for axis in axes)
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    order = [*kept, *axes]
    moved = x.transpose(order)
    rows = moved.reshape(math.prod(x.shape[axis] for axis in kept), -1).astype(np.float64)
    synapses = np.zeros(rows.shape, bool)
    chosen = active.reshape(-1)
    synapses[chosen] = rule(rows[chosen], share)
    return Carried({0: synapses.reshape(moved.shape).transpose(np.argsort(order))}, synapses)


def _sum(ran: Ran, active: Sequence[Array], share: float, sign: int) -> Carried:
    indices = _of_shape(ran, ran.outputs[0])
    if len(indices) < 2:
        return Carried(dict.fromkeys(indices, active[0]))
    addends = np.stack([ran.inputs[i].reshape(-1) for i in indices], axis=1).astype(np.float64)
    addends[:, 1:] *= sign
    synapses = np.zeros(addends.shape, bool)
    chosen = active[0].reshape(-1)
    synapses[chosen] = carrying(addends[chosen], share)
    shape = ran.outputs[0]
    return Carried({i: synapses[:, n].reshape(shape) for n, i in enumerate(indices)}, synapses)


def _of_shape(ran: Ran, shape: tuple[int, ...]) -> list[int]:
    """List the inputs that flow through an operator and have the shape of its output."""
    return [i for i in ran.data if ran.inputs[i].shape == shape]


def _some(indices: tuple[Array, ...], addends: int) -> Any:
    """Divide indices into parts that have not too many addends together."""
    number = max(1, _AT_ONCE // max(addends, 1))
    for start in range(0, len(indices[0]), number):
        yield [each[start : start + number] for each in indices]


def _one_hot(chosen: Array, like: Array) -> Array:
    found: Array = np.arange(like.shape[1]) == chosen[:, None]
    return found
