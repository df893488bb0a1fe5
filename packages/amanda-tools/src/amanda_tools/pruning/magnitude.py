"""The tool ``MagnitudePruning`` prunes the weights of least magnitude."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from amanda_tools.pruning.schedule import Schedule
from amanda_tools.pruning.weights import WeightPruning, without_least

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    Array = np.ndarray[Any, Any]


class MagnitudePruning(WeightPruning):
    """Takes the weights of least magnitude for zero (Han et al., NeurIPS 2015), by a schedule.

    Args:
        sparsity: the share of the weights that is pruned in the end.
        granularity: what is pruned as one, by its mean magnitude: an ``element``; a ``row``, which
            is all that a linear layer has for an output, and a row of a convolution's kernel; a
            ``filter``, which is all that there is for an output (Li et al., ICLR 2017).
        begin: the iteration at which pruning begins; see :meth:`step`.
        end: the one at which it ends. In between, sparsity grows by the cubic law of Zhu and Gupta
            (2017); by default all is pruned at once.
        every: iterations from one choice of masks to the next.
        budget: ``layer`` for this sparsity in each layer, or ``global`` for all of them together.
        scopes: globs of the scopes whose layers are pruned, all by default.
        frozen: whether what is pruned gets no gradient.
        out: a file to write when the scope is left, a row for each layer, as JSON or CSV, or a
            picture (.svg), by its ending.

    Raises:
        OSError: it cannot be written there.
        ValueError: an option is out of range.
    """

    def __init__(
        self,
        sparsity: float = 0.5,
        granularity: Literal["element", "row", "filter"] = "element",
        *,
        begin: int = 0,
        end: int = 0,
        every: int = 1,
        budget: Literal["layer", "global"] = "layer",
        scopes: list[str] | None = None,
        frozen: bool = True,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        if granularity not in ("element", "row", "filter"):
            known = "'element', 'row' or 'filter'"
            raise ValueError(f"granularity is {known}, not {granularity!r}")
        schedule = Schedule(sparsity, begin, end or begin, every)
        super().__init__(schedule, budget, scopes, frozen, out)
        self._granularity = granularity

    def masks(self, weights: Sequence[Array], sparsity: float) -> list[Array]:
        """Return the masks of layers, each (outputs, inputs, ...), that share a budget."""
        return without_least(weights, [self._units(weight.shape) for weight in weights], sparsity)

    def _units(self, shape: tuple[int, ...]) -> Array:
        elements = np.arange(np.prod(shape)).reshape(shape)
        if self._granularity == "element":
            return elements
        return elements // (shape[-1] if self._granularity == "row" else elements[0].size)
