"""All maps that are installed tell together which operators multiply, or compute others as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda.driving import context_map, entry_points_of

from amanda_contextmap.factors import LOOKUPS, PRODUCTS
from amanda_contextmap.onnx_map import OnnxMap

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from amanda_contextmap.factors import Factors


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
    return {**PRODUCTS, **of_maps}


def lookups() -> Sequence[str]:
    """List the operators that look up rows of a table, by the types that tools of ONNX's vocabulary
    see.
    """
    of_maps = [f"{found.vocabulary}::{type}" for found in _maps() for type in found.lookups]
    return [*LOOKUPS, *of_maps]


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


def packed(types: Collection[str]) -> Sequence[str]:
    """List the operators of the installed maps that compute some of these types of packed weights.

    They are listed by the types that tools of ONNX's vocabulary see.
    """
    return [
        f"{found.vocabulary}::{type}"
        for found in _maps()
        for type, computed in found.packed.items()
        if not computed.isdisjoint(types)
    ]


def _maps() -> Iterator[OnnxMap]:
    names = (entry.name.partition(":") for entry in entry_points_of("amanda.context_maps"))
    for backend, _, vocabulary in names:
        found = context_map(backend, vocabulary) if vocabulary == "onnx" else None
        if isinstance(found, OnnxMap):
            yield found
