"""These operators are layers: linear maps, normalization, embeddings, losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda_contextmap.contraction import einstein_sum
from amanda_contextmap.layout import CHANNELS_LAST, MATRIX
from amanda_contextmap.rule import axis, constant, rule
from amanda_contextmap.tensorflow.spatial import activation

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda_contextmap.layout import Layout
    from amanda_contextmap.native import Native
    from amanda_contextmap.rule import Rule


# Linear maps

_GEMM: dict[str, Any] = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 1}


def _product(a: str, b: str, transposed_a: str, transposed_b: str) -> tuple[Rule, ...]:
    """Return the rules of a matrix product: a ``Gemm`` if its second operand is a parameter.

    ONNX has no flags to transpose the operands of a ``MatMul``: they are seen as if they were
    transposed already.
    """

    def keeping(op: Native) -> bool:
        """Tell whether the product has the type of its operands."""
        return {op.dtype(b), op.get("Tout", op.dtype(b))} == {op.dtype(a)}

    def linear(op: Native) -> bool:
        return keeping(op) and op.is_parameter(b) and op.rank(b) == 2 and not op.value(transposed_a)

    def real(op: Native) -> bool:
        return keeping(op) and "complex" not in op.dtype(a)

    def widening(op: Native) -> bool:
        """Tell whether it sums up products of integers of 8 bits, as quantized models do."""
        return op.get("Tout") == "int32" and {op.dtype(a), op.dtype(b)} <= {"int8", "uint8"}

    def as_flagged(flag: str, turned: bool) -> Callable[[Native], Layout | None]:
        return lambda op: MATRIX if bool(op.value(flag)) is turned else None

    roles, ignores = f"A={a} B={b}", "Ta Tb"  # types are those of the operands
    untransposed: dict[str, Any] = {
        "A": as_flagged(transposed_a, True),
        "B": as_flagged(transposed_b, True),
    }
    return (
        rule("MatMulInteger", roles, when=widening, layouts=untransposed, ignores=ignores),
        rule(
            "Gemm",
            roles,
            when=linear,
            layouts={"B": as_flagged(transposed_b, False)},  # (in, out) seen as (out, in)
            ignores=ignores,
            **_GEMM,
        ),
        rule("MatMul", roles, when=real, layouts=untransposed, ignores=ignores),
    )


_BATCHED = _product("x", "y", "adj_x", "adj_y")


# Normalization


_BATCH_NORM = rule(
    "BatchNormalization",
    "X=x scale=scale B=offset input_mean=mean input_var=variance",
    outputs="Y",
    layouts={"X": activation, "Y": activation},
    epsilon="epsilon",
    momentum=lambda op: 1 - op.get("exponential_avg_factor", 1.0),
    training_mode=lambda op: int(op.value("is_training")),
)


def _window(op: Native) -> int:
    return 2 * int(op.value("depth_radius")) + 1


_LRN: dict[str, Any] = {
    "size": _window,
    "alpha": lambda op: op.value("alpha") * _window(op),  # ONNX divides it by the size
    "beta": "beta",
    "bias": "bias",
}


# Embeddings


def _unbatched(op: Native) -> bool:
    return int(op.get("batch_dims", 0)) == 0


TABLE: dict[str, Rule | tuple[Rule, ...]] = {
    "MatMul": _product("a", "b", "transpose_a", "transpose_b"),
    "BatchMatMul": _BATCHED,
    "BatchMatMulV2": _BATCHED,
    "BatchMatMulV3": _BATCHED,
    "MatrixDeterminant": rule("Det", "X=input"),
    "Einsum": einstein_sum("inputs", _GEMM),
    "FusedBatchNorm": _BATCH_NORM,
    "FusedBatchNormV2": _BATCH_NORM,
    "FusedBatchNormV3": _BATCH_NORM,
    "LRN": rule(
        "LRN",
        "X=input",
        outputs="Y",
        layouts={"X": CHANNELS_LAST, "Y": CHANNELS_LAST},
        **_LRN,
    ),
    "Gather": rule("Gather", "data=params indices=indices", axis=0),
    "GatherV2": rule(
        "Gather",
        "data=params indices=indices",
        when=_unbatched,
        axis=axis("axis", "params"),
    ),
    "SparseSoftmaxCrossEntropyWithLogits": rule(
        "SoftmaxCrossEntropyLoss",
        "scores=features labels=labels",
        outputs="output",
        reduction=constant("none"),
    ),
}
