"""The tool ``ActivationPruning`` prunes activations."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from amanda_tools.hidden import refuse_hidden
from amanda_tools.pruning.values import ZeroingValues, check_one, kept

if TYPE_CHECKING:
    import os

    import amanda

_ACTIVATIONS = ["Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu"]
_ACTIVATIONS += ["Relu", "Selu", "Sigmoid", "Softplus", "Swish", "Tanh"]


class ActivationPruning(ZeroingValues):
    """Takes activations of small magnitude for zero, in each example (Kurtz et al., ICML 2020).

    What is pruned gets no gradient.

    Args:
        threshold: what is pruned is smaller than this.
        keep: the share of the activations of each example that are kept, the largest of a layer.
            Of equal ones that are the last to stay, all do.
        scopes: globs of the scopes whose activations are pruned, all by default.
        count: count what is pruned. That takes routines on the host, which costs time in a graph.
        out: a file to write when the scope is left, a row for each operator, as JSON or CSV, or
            a picture (.svg), by its ending; then
            what is pruned is counted.

    Raises:
        OSError: it cannot be written there.
        ValueError: not one of ``threshold`` and ``keep`` is given, or one is out of range.
    """

    def __init__(
        self,
        threshold: float | None = None,
        keep: float | None = None,
        *,
        scopes: list[str] | None = None,
        count: bool = False,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        check_one(threshold, keep, "keep")
        if keep is not None and not 0 < keep <= 1:
            raise ValueError(f"keep is {keep}, and has to be above 0 and at most 1")
        super().__init__(count, out)
        self._threshold = threshold
        self._keep = keep
        refuse_hidden(self, _ACTIVATIONS, scopes)
        self.add_inst_for_op(self._analyze, ops=_ACTIVATIONS, scopes=scopes)
        self.add_inst_for_gradient(self._analyze_gradient, ops=_ACTIVATIONS, scopes=scopes)

    def _analyze(self, ctx: amanda.OpContext) -> None:
        self.prune(ctx, self._is_pure(ctx))

    def _analyze_gradient(self, ctx: amanda.OpContext) -> None:
        self.prune_gradient(ctx, self._is_pure(ctx))

    def _is_pure(self, ctx: amanda.OpContext) -> bool:
        """Tell whether it is known, while a graph is made, how many are kept of an example."""
        shape = ctx.describe(ctx.inputs[0]).shape
        return self._keep is None or (shape is not None and None not in shape[1:])

    def masked(self, tensor: Any, values: Any, xp: Any) -> Any:
        """Return a tensor with zeros where activations are pruned."""
        magnitudes, most = xp.abs(values), None
        if self._keep is not None:
            size = prod(values.shape[1:])
            if size < 2:  # an example has none to choose from
                return tensor
            magnitudes, most = xp.reshape(magnitudes, (-1, size)), max(1, round(self._keep * size))
        mask = kept(magnitudes, self._threshold, most, xp)
        if self._keep is not None:
            mask = xp.reshape(mask, (-1, *values.shape[1:]))
        return xp.where(mask, tensor, xp.zeros_like(tensor))
