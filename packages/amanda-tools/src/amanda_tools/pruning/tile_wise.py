"""The tool ``TileWisePruning`` prunes vectors within tiles of a weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from amanda_tools.pruning.schedule import Schedule
from amanda_tools.pruning.weights import WeightPruning, without_least

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    Array = np.ndarray[Any, Any]


class TileWisePruning(WeightPruning):
    """Prunes weights so that dense products of tiles are left (Guo et al., SC 2020).

    A weight is a matrix with a column for each output: of a convolution, that of its product with
    the patches. Whole columns go first. Those that are left lie in tiles of some width, side by
    side, and in each tile whole rows go. Both go by their mean magnitude, and in equal shares, so
    that the sparsity of both together is the one that is asked for.

    Args:
        sparsity: the share of the weights that is pruned in the end.
        tile: columns in a tile.
        begin: the iteration at which pruning begins; see :meth:`step`.
        end: the one at which it ends, after growing by the cubic law of Zhu and Gupta (2017).
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
        sparsity: float = 0.75,
        tile: int = 128,
        *,
        begin: int = 0,
        end: int = 0,
        every: int = 1,
        budget: Literal["layer", "global"] = "global",
        scopes: list[str] | None = None,
        frozen: bool = True,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        if tile < 1:
            raise ValueError(f"tile is {tile}, and has to be 1 or more")
        schedule = Schedule(sparsity, begin, end or begin, every)
        super().__init__(schedule, budget, scopes, frozen, out)
        self._tile = tile

    def masks(self, weights: Sequence[Array], sparsity: float) -> list[Array]:
        """Return the masks of layers, each (outputs, inputs, ...), that share a budget."""
        matrices = [weight.reshape(len(weight), -1) for weight in weights]
        part = 1 - (1 - sparsity) ** 0.5
        columns = [np.broadcast_to(np.arange(len(m))[:, None], m.shape) for m in matrices]
        first = without_least(matrices, columns, part)
        vectors = [self._vectors(mask) for mask in first]
        second = without_least(matrices, vectors, part)
        return [
            (one & other).reshape(weight.shape)
            for one, other, weight in zip(first, second, weights, strict=True)
        ]

    def _vectors(self, mask: Array) -> Array:
        """Number, for each element of columns that are left, the row of a tile that it is in."""
        tile = (np.cumsum(mask[:, :1], 0) - 1) // self._tile
        vectors: Array = np.where(mask, tile * mask.shape[1] + np.arange(mask.shape[1]), -1)
        return vectors
