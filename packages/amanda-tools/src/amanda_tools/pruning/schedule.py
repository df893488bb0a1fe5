"""A schedule says how much is pruned at which iteration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """A schedule reaches its sparsity at once, or by the cubic law of Zhu and Gupta (2017).

    The law is equation 1 of "To prune, or not to prune: exploring the efficacy of pruning for model
    compression", with an initial sparsity of zero.

    Attributes:
        sparsity: what is reached at ``end``, at least 0 and less than 1.
        begin: the first iteration at which something is pruned.
        end: the iteration from which on the masks stay; the same as ``begin`` for all at once.
        every: iterations from one choice of masks to the next.

    Raises:
        ValueError: there is no such schedule.
    """

    sparsity: float
    begin: int = 0
    end: int = 0
    every: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.sparsity < 1:
            raise ValueError(f"sparsity is {self.sparsity}, and has to be at least 0 and below 1")
        if not 0 <= self.begin <= self.end:
            raise ValueError(f"pruning begins at {self.begin} and ends at {self.end}")
        if self.every < 1:
            raise ValueError(f"every is {self.every}, and has to be 1 or more")
        if self.every > 1 and self.begin == self.end:
            raise ValueError(f"every={self.every}: where all is pruned at once it has no effect")

    def is_due(self, iteration: int) -> bool:
        """Tell whether masks are chosen at an iteration."""
        within = self.begin <= iteration <= self.end
        return within and ((iteration - self.begin) % self.every == 0 or iteration == self.end)

    def at(self, iteration: int) -> float:
        """Return the sparsity of the masks that are active at an iteration."""
        if iteration < self.begin:
            return 0.0
        if iteration >= self.end:
            return self.sparsity
        chosen = iteration - (iteration - self.begin) % self.every
        return self.sparsity * (1 - (1 - (chosen - self.begin) / (self.end - self.begin)) ** 3)
