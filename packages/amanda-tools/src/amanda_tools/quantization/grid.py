"""A quantized tensor is made of the integers of a grid."""

from __future__ import annotations

from typing import Any, NamedTuple

LEAST_BITS, MOST_BITS = 2, 8


class Numbers(NamedTuple):
    """These are numbers that ranges are divided by, or that divide them.

    In a graph they have to be values of variables: its optimizer turns a division by a constant
    into a product with its inverse, and one of a constant 1 into an inverse that is not exact,
    which are other numbers in the last bit.

    Attributes:
        steps: how many there are from one end of a grid to the other.
        one: 1.
    """

    steps: Any
    one: Any


class Grid(NamedTuple):
    """A grid has the integers from ``low`` to ``high``, both of them included.

    Attributes:
        symmetric: zero is the integer 0, and scales are chosen by the largest magnitude.
    """

    low: int
    high: int
    symmetric: bool

    @property
    def steps(self) -> int:
        """Return how many steps there are from one end to the other."""
        return self.high - self.low

    @property
    def numbers(self) -> Numbers:
        """Return the numbers that ranges are divided by."""
        return Numbers(self.steps, 1)


def grid_of(bits: int, symmetric: bool, narrow: bool) -> Grid:
    """Return the integers of some bits: signed ones if they are symmetric, else from 0 on.

    Args:
        bits: from 2 to 8.
        symmetric: whether zero is the integer 0.
        narrow: leave out the lowest integer, so that a symmetric grid has as many on both sides.

    Raises:
        ValueError: there are fewer bits, or more.
    """
    if not LEAST_BITS <= bits <= MOST_BITS:
        raise ValueError(f"bits={bits}: a tensor is quantized to {LEAST_BITS} to {MOST_BITS} bits")
    low = -(2 ** (bits - 1)) if symmetric else 0
    return Grid(low + narrow, low + 2**bits - 1, symmetric)
