"""Some operators multiply, and some compute others as one, which tools that change factors ask."""

from __future__ import annotations

from typing import NamedTuple


class Factor(NamedTuple):
    """An input that an operator multiplies by others is a factor.

    Attributes:
        channel: the axis of the output's channels, in a parameter of several axes.
        summed: the axis along which products are summed up, if it is one for all of them.
    """

    channel: int | None = None
    summed: int | None = None


class Whole(NamedTuple):
    """An operator that computes others as one, whose factors no tool gets to see, is a whole.

    Attributes:
        types: the types of ONNX of what it computes.
        way_out: how a model computes the same by several operators.
    """

    types: frozenset[str]
    way_out: str


Factors = dict[str, Factor]

_RECURRENT = {"X": Factor(), "W": Factor(channel=-2), "R": Factor(channel=-2)}
_MATRICES = {"A": Factor(channel=-2, summed=-1), "B": Factor(channel=-1, summed=-2)}
PRODUCTS: dict[str, Factors] = {
    "Conv": {"X": Factor(), "W": Factor(channel=0)},
    "ConvTranspose": {"X": Factor(), "W": Factor(channel=1)},
    "Gemm": {"A": Factor(channel=0, summed=-1), "B": Factor(channel=0)},
    "MatMul": _MATRICES,
    "MatMulInteger": _MATRICES,
    "Einsum": {"Inputs": Factor()},
    "Attention": {"Q": Factor(summed=-1), "K": Factor(summed=-1), "V": Factor(summed=-2)},
    "LSTM": _RECURRENT,
    "GRU": _RECURRENT,
    "RNN": _RECURRENT,
}
"""The factors of the operators of ONNX that multiply, by type and the role of the input."""

LOOKUPS = ("Gather",)
"""The operators of ONNX that look up rows of a table."""
