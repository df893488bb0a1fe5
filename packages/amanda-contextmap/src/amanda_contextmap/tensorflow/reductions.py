"""These operators work along axes: reductions, softmax, cumulative sums, the largest elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda_contextmap.layout import Cast
from amanda_contextmap.rule import axes, axis, rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda_contextmap.layout import Layout
    from amanda_contextmap.native import Native
    from amanda_contextmap.rule import Rule


def _keepdims(op: Native) -> int:
    return int(op.value("keep_dims"))


def _reduces_nothing(op: Native) -> int | None:
    """Return 1 where there are no axes and a tensor stays as it is; ONNX would take all axes."""
    return None if op.value("reduction_indices") else 1


def _reduction(type: str) -> Rule:
    return rule(
        type,
        "data=input axes=reduction_indices",
        axes=axes("reduction_indices", "input"),
        keepdims=_keepdims,
        noop_with_empty_axes=_reduces_nothing,
    )


def _first_extreme(type: str) -> Rule:
    return rule(
        type,
        "data=input",
        when=lambda op: op.get("output_type", "int64") == "int64",
        axis=axis("dimension", "input"),
        keepdims=0,
        select_last_index=0,
    )


def _last(of: str) -> Callable[[Native], Any]:
    return lambda op: op.rank(of) - 1


def _cumulative(type: str) -> Rule:
    return rule(
        type,
        "x=x axis=axis",
        axis=axis("axis", "x"),
        exclusive=lambda op: int(op.value("exclusive")),
        reverse=lambda op: int(op.value("reverse")),
    )


def _indices(op: Native) -> Layout | None:
    """Return the layout of indices, which are of a smaller type here by default."""
    dtype = op.get("index_type", "int32")
    return None if dtype == "int64" else Cast(dtype, "int64")


TABLE: dict[str, Rule] = {
    "Sum": _reduction("ReduceSum"),
    "Mean": _reduction("ReduceMean"),
    "Prod": _reduction("ReduceProd"),
    "Max": _reduction("ReduceMax"),
    "Min": _reduction("ReduceMin"),
    "EuclideanNorm": _reduction("ReduceL2"),
    "ArgMax": _first_extreme("ArgMax"),
    "ArgMin": _first_extreme("ArgMin"),
    "Softmax": rule("Softmax", "input=logits", axis=_last("logits")),
    "LogSoftmax": rule("LogSoftmax", "input=logits", axis=_last("logits")),
    "Any": _reduction("ReduceMax"),  # of booleans
    "All": _reduction("ReduceMin"),
    "Cumsum": _cumulative("CumSum"),
    "Cumprod": _cumulative("CumProd"),
    "TopKV2": rule(
        "TopK",
        "X=input",
        K="k",
        outputs="Values Indices",
        layouts={"Indices": _indices},
        axis=_last("input"),
        largest=1,
        sorted=lambda op: int(op.value("sorted")),
    ),
}
