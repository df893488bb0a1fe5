"""The tool ``DynamicChannelPruning`` prunes channels, other ones for each example."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from amanda_tools.arrays import like, widened
from amanda_tools.computed_weights import ComputedWeights
from amanda_tools.numbering import Numbering, part_of
from amanda_tools.packed_weights import PackedWeights
from amanda_tools.pruning.copies import Copies
from amanda_tools.pruning.values import ValuePruning

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable

    import amanda

    from amanda_tools.pruning.layers import PrunedValues

    Array = np.ndarray[Any, Any]


class _Gate:
    """A convolution's gate has what is learned, and the gradients of that since the last step."""

    def __init__(self, values: list[Array]) -> None:
        self.values = values
        self.gradients = [np.zeros_like(value) for value in values]
        self.copies = [Copies() for _ in values]

    def step(self, rate: float) -> None:
        """Go down the gradients."""
        for value, gradient, copies in zip(self.values, self.gradients, self.copies, strict=True):
            value -= rate * gradient
            gradient[...] = 0
            copies.assign(value)


class DynamicChannelPruning(ValuePruning):
    """Prunes channels for each example (Gao et al., ICLR 2019, feature boosting and suppression).

    A convolution has some of its channels, those that a small gate finds salient in its input.

    The saliency of output channels is ``relu(s @ phi + rho)``, where ``s`` has the mean magnitude
    of each input channel. The most salient channels are scaled by it, the others are zero. The gate
    is trained with the model: by :meth:`step`, after each step of the optimizer. It is applied to
    what the convolution gives; a normalization behind it sees the scaled channels.

    Args:
        keep: the share of the channels that each example has.
        learning_rate: the learning rate of the gate, which is trained by gradient descent.
        penalty: the weight of the sum of saliencies in the loss.
        scopes: globs of the scopes whose convolutions are pruned, all by default.
        seed: the seed of the first ``phi``, drawn from a normal distribution (He et al., 2015);
            ``rho`` begins as ones.
        count: count what is pruned. That takes routines on the host, which costs time in a graph.
        out: a file to write when the scope is left, a row for each operator, as JSON or CSV, or
            a picture (.svg), by its ending; then
            what is pruned is counted.

    Raises:
        OSError: it cannot be written there.
        ValueError: an option is out of range.
    """

    def __init__(
        self,
        keep: float = 0.5,
        *,
        learning_rate: float = 0.01,
        penalty: float = 1e-8,
        scopes: list[str] | None = None,
        seed: int = 0,
        count: bool = False,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        if not 0 < keep <= 1:
            raise ValueError(f"keep is {keep}, and has to be above 0 and at most 1")
        if not learning_rate >= 0:
            raise ValueError(f"learning_rate is {learning_rate}, and has to be 0 or more")
        super().__init__(count, out)
        self._keep = keep
        self._rate = learning_rate
        self._penalty = penalty
        self._seed = seed
        self._gates: dict[Hashable, _Gate] = {}
        self._numbers = Numbering()
        self._computed = ComputedWeights(self)
        self._packed = PackedWeights(self, ["Conv"], scopes)
        self.add_inst_for_op(self._analyze, ops=["Conv"], scopes=scopes)
        self.add_inst_for_gradient(self._analyze_gradient, ops=["Conv"], scopes=scopes)

    @property
    def gates(self) -> list[tuple[Array, Array]]:
        """Return ``phi`` (inputs, outputs) and ``rho`` (outputs) of each convolution, in order."""
        return [(gate.values[0], gate.values[1]) for gate in self._gates.values()]

    def step(self) -> None:
        """Train the gates by the gradients of all backward passes since the last time."""
        for gate in self._gates.values():
            gate.step(self._rate)

    def on_exit(self) -> None:
        """Bring the file up to date, and warn of convolutions that are left alone."""
        super().on_exit()
        self._computed.warn()
        self._packed.warn()

    def _analyze(self, ctx: amanda.OpContext) -> None:
        parameter = ctx.parameter("W")
        if parameter is None:
            self._computed.note(ctx)
            return
        gate = self._gate_of((self._numbers.of(parameter.source), part_of(ctx, "W")), ctx)
        named = zip(("phi", "rho"), gate.values, gate.copies, strict=True)
        variables = [copies.of(ctx.variable(name, value)) for name, value, copies in named]
        state = ctx.state(self)
        state["gate"], state["variables"] = gate, variables
        ctx.insert_after_op(
            self._gated,
            outputs=[0],
            with_inputs=["X"],
            pure=self.pure,
            variables=variables,
            row=self.row(ctx),
            ctx=ctx,
        )

    def _gate_of(self, taken: Hashable, ctx: amanda.OpContext) -> _Gate:
        if taken not in self._gates:
            outputs, per_group, *_ = ctx.value("W").shape
            inputs = per_group * ctx.attrs["group"]
            random = np.random.default_rng([self._seed, len(self._gates)])
            phi = random.standard_normal((inputs, outputs)) * (2 / inputs) ** 0.5
            self._gates[taken] = _Gate([phi.astype("float32"), np.ones(outputs, "float32")])
        return self._gates[taken]

    def _analyze_gradient(self, ctx: amanda.OpContext) -> None:
        if "gate" in ctx.state(self):
            ctx.insert_on_grad_outputs(
                self._of_outputs, outputs=[0], with_inputs=["X"], with_outputs=[0], ctx=ctx
            )
            ctx.insert_on_grad_inputs(self._of_inputs, inputs=["X"], with_inputs=["X"], ctx=ctx)

    def _salient(self, x: Any, variables: list[Any], ctx: amanda.OpContext) -> tuple[Any, Any, Any]:
        """Return what the gate is given, what it says of each channel, and whether that stays.

        All of it is in single precision at least.
        """
        xp = ctx.xp
        means = xp.mean(xp.abs(_wide(x, ctx)), axis=tuple(range(2, len(x.shape))))
        phi, rho = (like(variable * 1, means, xp) for variable in variables)
        sums = xp.matmul(means, phi) + rho
        most = ceil(self._keep * sums.shape[1])
        return means, sums, (sums > 0) & (sums >= xp.sort(sums, axis=-1)[:, -most:][:, :1])

    def _gated(
        self, y: Any, x: Any, variables: list[Any], row: PrunedValues, ctx: amanda.OpContext
    ) -> Any:
        xp = ctx.xp
        _, sums, stays = self._salient(x, variables, ctx)
        scale = xp.where(stays, sums, xp.zeros_like(sums))
        return self.counted(y * _by_channel(scale, y, xp), row, ctx.numpy)

    def _of_outputs(self, grad: Any, x: Any, y: Any, ctx: amanda.OpContext) -> Any:
        """Return the gradient of what the convolution gives; that of the gate goes to it."""
        xp, numpy, state = ctx.xp, ctx.numpy, ctx.state(self)
        means, sums, stays = self._salient(x, state["variables"], ctx)
        zeros = xp.zeros_like(sums)
        of_scale = xp.sum(_wide(grad, ctx) * _wide(y, ctx), axis=tuple(range(2, len(y.shape))))
        of_sums = xp.where(stays, of_scale, zeros)
        of_sums = of_sums + xp.where(sums > 0, zeros + self._penalty, zeros)
        gate = state["gate"]
        gate.gradients[0] += numpy(xp.matmul(xp.matrix_transpose(means), of_sums))
        gate.gradients[1] += numpy(xp.sum(of_sums, axis=0))
        phi = like(state["variables"][0] * 1, of_sums, xp)
        state["of_means"] = xp.matmul(of_sums, xp.matrix_transpose(phi))
        return grad * _by_channel(xp.where(stays, sums, zeros), y, xp)

    def _of_inputs(self, grad: Any, x: Any, ctx: amanda.OpContext) -> Any:
        """Return the gradient of the input, also by way of the gate."""
        xp = ctx.xp
        of_means = ctx.state(self).pop("of_means")
        if grad is None:
            return None
        size = 1
        for axis in range(2, len(x.shape)):
            size *= x.shape[axis]
        return grad + xp.sign(x) * _by_channel(of_means / size, x, xp)


def _wide(tensor: Any, ctx: amanda.OpContext) -> Any:
    return widened(tensor, ctx.describe(tensor).dtype, ctx.xp)


def _by_channel(scale: Any, values: Any, xp: Any) -> Any:
    """Shape numbers for each example and channel so that they broadcast to these values."""
    for _ in values.shape[2:]:
        scale = xp.expand_dims(scale, axis=-1)
    return like(scale, values, xp)
