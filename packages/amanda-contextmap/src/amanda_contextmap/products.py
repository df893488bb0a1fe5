"""Some operators multiply, and some compute others as one: this tells tools that change factors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from amanda.driving import context_map, entry_points_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from amanda_contextmap.onnx_map import OnnxMap


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
_PRODUCTS: dict[str, Factors] = {
    "Conv": {"X": Factor(), "W": Factor(channel=0)},
    "ConvTranspose": {"X": Factor(), "W": Factor(channel=1)},
    "Gemm": {"A": Factor(summed=-1), "B": Factor(channel=0)},
    "MatMul": {"A": Factor(channel=-2, summed=-1), "B": Factor(channel=-1, summed=-2)},
    "Einsum": {"Inputs": Factor()},
    "Attention": {"Q": Factor(summed=-1), "K": Factor(summed=-1), "V": Factor(summed=-2)},
    "LSTM": _RECURRENT,
    "GRU": _RECURRENT,
    "RNN": _RECURRENT,
}


def products() -> Mapping[str, Factors]:
    """List the factors of operators that multiply, by operator type and the role of the input.

    The types are those that tools of ONNX's vocabulary see. Those that ONNX lacks, as
    ``torch::baddbmm``, are told of by the maps that are installed.
    """
    of_maps = {
        f"{found.vocabulary}::{type}": factors
        for found in _maps()
        for type, factors in found.products.items()
    }
    return {**_PRODUCTS, **of_maps}


def wholes(types: Collection[str]) -> Mapping[str, str]:
    """Find the operators of the installed maps that compute some of these types as one.

    Returns:
        by the type that tools of ONNX's vocabulary see, how a model does without it.
    """
    return {
        f"{found.vocabulary}::{type}": whole.way_out
        for found in _maps()
        for type, whole in found.wholes.items()
        if not whole.types.isdisjoint(types)
    }


def _maps() -> Iterator[OnnxMap]:
    from amanda_contextmap.onnx_map import OnnxMap  # which is made of these

    names = (entry.name.partition(":") for entry in entry_points_of("amanda.context_maps"))
    for backend, _, vocabulary in names:
        found = context_map(backend, vocabulary) if vocabulary == "onnx" else None
        if isinstance(found, OnnxMap):
            yield found
