"""These operators work along axes: reductions, softmax, cumulative sums, the largest elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_contextmap.rule import axis, rule
from amanda_contextmap.torch.conditions import of_booleans, same_dtype

if TYPE_CHECKING:
    from amanda_contextmap.native import Native
    from amanda_contextmap.rule import Condition, Rule


def _accumulates(op: Native) -> bool:
    """Tell whether nothing is cast on the way.

    Sums of smaller integers are of int64 unless they are told.
    """
    dtype = op.dtype("self")
    small = "int" in dtype and dtype != "int64"
    return same_dtype(op) and not (small and op.get("dtype") is None)


def _axes(op: Native) -> list[int] | None:
    """Return the axes; None for all of them, and for a number, which has none."""
    return op.axes("dim", "self") or None if op.has("dim") and op.rank("self") else None


def _keepdims(op: Native) -> int:
    return int(op.get("keepdim", False))


def _reduction(type: str, when: Condition = same_dtype, outputs: str | None = None) -> Rule:
    return rule(type, "data=self", outputs=outputs, when=when, axes=_axes, keepdims=_keepdims)


def _extreme(between: str, along: str) -> tuple[Rule, ...]:
    """Return the rules of ``max`` and ``min``: of two tensors, or along axes with the places."""
    return (
        rule(
            between,
            "data_0[0]=self data_0[1]=other",
            when=lambda op: op.has("other"),
        ),
        _reduction(along, outputs="reduced"),
    )


def _first_extreme(type: str) -> Rule:
    """Return the rule of a place along an axis; ONNX has none for a place among all elements."""
    return rule(
        type,
        "data=self",
        when=lambda op: op.has("dim") and op.rank("self") > 0,
        axis=axis("dim", "self"),
        keepdims=_keepdims,
        select_last_index=0,
    )


def _norm(order: str) -> tuple[Rule, ...]:
    def of(number: int) -> Condition:
        return lambda op: op.value(order) == number and same_dtype(op)

    return _reduction("ReduceL1", of(1)), _reduction("ReduceL2", of(2))


def _along(type: str) -> Rule:
    return rule(
        type,
        "input=self",
        when=lambda op: same_dtype(op) and op.rank("self") > 0,
        ignores="half_to_float",
        axis=axis("dim", "self"),
    )


_SOFTMAX = _along("Softmax")
_LOG_SOFTMAX = _along("LogSoftmax")


def _cumulative(type: str) -> Rule:
    return rule(
        type,
        "x=self",
        when=lambda op: _accumulates(op) and op.rank("self") > 0,
        axis=axis("dim", "self"),
        exclusive=0,
        reverse=0,
    )


def _sorted_whole(op: Native) -> bool:
    return op.rank("self") > 0 and not op.get("stable")


TABLE: dict[str, Rule | tuple[Rule, ...]] = {
    "sum": _reduction("ReduceSum", _accumulates),
    "mean": _reduction("ReduceMean"),
    "prod": _reduction("ReduceProd", _accumulates),
    "amax": _reduction("ReduceMax"),
    "amin": _reduction("ReduceMin"),
    "max": _extreme("Max", "ReduceMax"),
    "min": _extreme("Min", "ReduceMin"),
    "logsumexp": _reduction("ReduceLogSumExp"),
    "norm": _norm("p"),
    "linalg_vector_norm": _norm("ord"),
    "argmax": _first_extreme("ArgMax"),
    "argmin": _first_extreme("ArgMin"),
    "softmax": _SOFTMAX,
    "_softmax": _SOFTMAX,
    "log_softmax": _LOG_SOFTMAX,
    "_log_softmax": _LOG_SOFTMAX,
    "cumsum": _cumulative("CumSum"),
    "cumprod": _cumulative("CumProd"),
    "any": _reduction("ReduceMax", of_booleans),
    "all": _reduction("ReduceMin", of_booleans),
    "sort": rule(
        "TopK",
        "X=self",
        when=_sorted_whole,
        K=lambda op: op.size("self", op.value("dim")),
        axis=axis("dim", "self"),
        largest=lambda op: int(op.value("descending")),
        sorted=1,
    ),
    "topk": rule(
        "TopK",
        "X=self K=k",
        when=lambda op: op.rank("self") > 0,
        axis=axis("dim", "self"),
        largest=lambda op: int(op.value("largest")),
        sorted=lambda op: int(op.value("sorted")),
    ),
}
