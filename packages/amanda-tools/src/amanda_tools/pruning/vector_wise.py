"""The tool ``VectorWisePruning`` keeps some of each few weights, as sparse tensor cores do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from amanda_tools.pruning.schedule import Schedule
from amanda_tools.pruning.weights import WeightPruning

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    Array = np.ndarray[Any, Any]


class VectorWisePruning(WeightPruning):
    """Keeps the ``n`` largest of each ``m`` weights along the inputs, 2 of 4 by default.

    That is what NVIDIA's APEX prunes by (ASP; Mishra et al., "Accelerating sparse deep neural
    networks", 2021), with the pattern ``m4n2_1d``. A layer whose inputs are no multiple of ``m`` is
    left as it is, and has no row.

    Args:
        n: how many are kept.
        m: how many they are chosen from.
        begin: the iteration at which it is pruned; see :meth:`step`.
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
        n: int = 2,
        m: int = 4,
        *,
        begin: int = 0,
        scopes: list[str] | None = None,
        frozen: bool = True,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        if not 1 <= n <= m:
            raise ValueError(f"of {m} weights {n} are to be kept, and have to be 1 to {m}")
        super().__init__(Schedule(1 - n / m, begin, begin), "layer", scopes, frozen, out)
        self._n = n
        self._m = m

    def prunes(self, weight: Array) -> bool:
        """Tell whether the inputs of a weight (outputs, inputs, ...) come in groups of ``m``."""
        return bool(weight.shape[1] % self._m == 0)

    def masks(self, weights: Sequence[Array], sparsity: float) -> list[Array]:
        """Return the masks of layers, each (outputs, inputs, ...)."""
        return [self._mask(w) if sparsity else np.ones(w.shape, bool) for w in weights]

    def _mask(self, weight: Array) -> Array:
        inputs_last = np.moveaxis(np.abs(weight), 1, -1)
        groups = inputs_last.reshape(-1, self._m)
        groups = np.where(np.isnan(groups), np.inf, groups)  # kept, or pruning would hide it
        largest = np.argsort(-groups, axis=1, kind="stable")[:, : self._n]
        mask = np.zeros(groups.shape, bool)
        np.put_along_axis(mask, largest, True, axis=1)
        return np.moveaxis(mask.reshape(inputs_last.shape), -1, 1)
