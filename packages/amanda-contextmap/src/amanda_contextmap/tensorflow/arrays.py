"""These operators move elements about: shapes, axes, parts of tensors, indices, data types.

Shapes, axes and the like are tensors here. Where they are constants, as they mostly are, they are
seen as attributes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda import ValueUnavailableError

from amanda_contextmap.dtypes import CODES, as_number
from amanda_contextmap.layout import MATRIX, stacked
from amanda_contextmap.native import dtype_name
from amanda_contextmap.rule import axis, constant, rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amanda_contextmap.layout import Layout
    from amanda_contextmap.native import Native
    from amanda_contextmap.rule import Rule


# Shapes


def _removed(op: Native) -> list[int]:
    given = op.value("squeeze_dims")
    if given:
        return op.axes("squeeze_dims", "input")
    return [i for i, size in enumerate(op.sizes("input")) if size == 1]


def _inserted(op: Native) -> list[int]:
    dim: int = op.value("dim")
    return [dim + op.rank("input") + 1 if dim < 0 else dim]


# Parts of tensors

_END = 2**63 - 1  # past the end of any axis


def _split_evenly(op: Native) -> Mapping[str, Any]:
    dim, parts = op.axis("split_dim", "value"), op.value("num_split")
    try:
        return {"axis": dim, "split": [op.size("value", dim) // parts] * parts}
    except ValueUnavailableError:
        return {"axis": dim, "num_outputs": parts}


def _split_by_sizes(op: Native) -> Mapping[str, Any]:
    dim, sizes = op.axis("split_dim", "value"), op.value("size_splits")
    if -1 in sizes:  # what is left
        rest = op.size("value", dim) - sum(sizes) - 1
        sizes = [rest if size == -1 else size for size in sizes]
    return {"axis": dim, "split": sizes}


def _slice(op: Native) -> Mapping[str, Any]:
    begin, size = op.value("begin"), op.value("size")
    return {
        "starts": begin,
        "ends": [_END if s == -1 else b + s for b, s in zip(begin, size, strict=True)],
        "axes": list(range(len(begin))),
        "steps": [1] * len(begin),
    }


def _bits(op: Native, name: str) -> set[int]:
    mask = int(op.get(name, 0))
    return {i for i in range(mask.bit_length()) if mask >> i & 1}


def _keeps_axes(op: Native) -> bool:
    return not any(op.get(name) for name in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask"))


def _strided_slice(op: Native) -> Mapping[str, Any]:
    steps = op.value("strides")
    starts, ends = list(op.value("begin")), list(op.value("end"))
    for i in _bits(op, "begin_mask"):
        starts[i] = 0 if steps[i] > 0 else _END
    for i in _bits(op, "end_mask"):
        ends[i] = _END if steps[i] > 0 else -_END
    return {"starts": starts, "ends": ends, "axes": list(range(len(steps))), "steps": steps}


def _takes_one(op: Native) -> bool:
    """Tell whether one element is taken along one axis, and all along the others: ``x[:, 0]``."""
    if op.get("ellipsis_mask") or op.get("new_axis_mask"):
        return False
    axes = set(range(len(op.value("strides"))))
    taken = _bits(op, "shrink_axis_mask")
    whole = _bits(op, "begin_mask") & _bits(op, "end_mask")
    return (
        len(taken) == 1 and axes - taken <= whole and all(op.value("strides")[i] == 1 for i in axes)
    )


def _taken(op: Native) -> Mapping[str, Any]:
    (axis,) = _bits(op, "shrink_axis_mask")
    return {"indices": op.value("begin")[axis], "axis": axis}


def _pads(op: Native) -> list[int]:
    pairs = op.value("paddings")
    return [before for before, _ in pairs] + [after for _, after in pairs]


# Indices, data types


def _off_and_on(op: Native) -> list[Any]:
    return [op.value("off_value"), op.value("on_value")]


def _strict(op: Native) -> bool:
    """Tell whether indices that are out of range are errors."""
    return op.get("bad_indices_policy", "") in ("", "DEFAULT", "ERROR")


def _scattered(reduction: str) -> Rule:
    return rule(
        "ScatterND",
        "data=tensor indices=indices updates=updates",
        when=_strict,
        reduction=constant(reduction),
    )


def _lower(op: Native) -> bool:
    return bool(op.value("num_lower") < 0 <= op.value("num_upper"))


def _upper(op: Native) -> bool:
    return bool(op.value("num_upper") < 0 <= op.value("num_lower"))


def _filled_like(number: int) -> Rule:
    """Return the rule of what has the shape of another tensor, whose elements do not matter."""
    return rule(
        "Expand",
        "",
        input=lambda op: as_number(number, op.dtype("x")),
        shape=lambda op: op.sizes("x"),
    )


def _drawn(type: str, **attrs: Any) -> Rule:
    return rule(
        type,
        "",
        ignores="seed seed2",
        shape="shape",
        dtype=lambda op: CODES[op.value("dtype")],
        **attrs,
    )


def _dtype_code(op: Native) -> int | None:
    return CODES.get(dtype_name(op.value("DstT")))


_CONCAT = "inputs=values"
_IDENTITY = rule("Identity", "input=input")


def _repeats_single_elements(op: Native) -> bool:
    """Tell whether it repeats only along axes of size one, as a broadcast does."""
    pairs = zip(op.shape("input"), op.value("multiples"), strict=True)
    return all(count == 1 or size == 1 for size, count in pairs)


def _stacked(op: Native) -> tuple[int, Layout]:
    return stacked(op.value("axis"), op.rank("values"))


TABLE: dict[str, Rule | tuple[Rule, ...]] = {
    # shapes
    "Reshape": rule("Reshape", "data=tensor shape=shape"),
    "Squeeze": rule("Squeeze", "data=input", axes=_removed),
    "ExpandDims": rule("Unsqueeze", "data=input", axes=_inserted),
    "BroadcastTo": rule("Expand", "input=input shape=shape"),
    "Tile": (
        rule("Expand", "input=input shape=multiples", when=_repeats_single_elements),
        rule("Tile", "input=input repeats=multiples"),
    ),
    "Shape": rule("Shape", "data=input"),
    "Size": rule("Size", "data=input"),
    # axes
    "Transpose": rule("Transpose", "data=x", perm="perm"),
    # parts
    "ConcatV2": rule("Concat", _CONCAT, axis=axis("axis", "values")),
    "Concat": rule("Concat", _CONCAT, axis=axis("concat_dim", "values")),
    "Pack": rule(
        "Concat",
        "inputs=values",
        layouts={"inputs": lambda op: _stacked(op)[1]},
        axis=lambda op: _stacked(op)[0],
    ),
    "Split": rule("Split", "input=value", _split_evenly),
    "SplitV": rule("Split", "input=value", _split_by_sizes, ignores="num_split"),
    "Slice": rule("Slice", "data=input", _slice),
    "StridedSlice": (
        rule("Slice", "data=input", _strided_slice, when=_keeps_axes),
        rule("Gather", "data=input", _taken, when=_takes_one, ignores="end"),
    ),
    "Pad": rule("Pad", "data=input", pads=_pads, mode=constant("constant")),
    "PadV2": rule(
        "Pad", "data=input constant_value=constant_values", pads=_pads, mode=constant("constant")
    ),
    "MirrorPad": rule(
        "Pad",
        "data=input",
        when=lambda op: op.value("mode") == "REFLECT",
        pads=_pads,
        mode=constant("reflect"),
    ),
    # indices
    "GatherNd": rule("GatherND", "data=params indices=indices", when=_strict, batch_dims=0),
    "OneHot": rule("OneHot", "indices=indices depth=depth", values=_off_and_on, axis="axis"),
    "Range": rule("Range", "start=start limit=limit delta=delta"),
    "Where": rule("NonZero", "X=condition", outputs="Y", layouts={"Y": MATRIX}),
    "Unique": rule("Unique", "X=x", outputs="Y", ignores="out_idx", sorted=0),
    "ReverseSequence": rule(
        "ReverseSequence",
        "input=input sequence_lens=seq_lengths",
        when=lambda op: {op.value("seq_dim"), op.value("batch_dim")} == {0, 1},
        time_axis="seq_dim",
        batch_axis="batch_dim",
    ),
    "TensorScatterUpdate": _scattered("none"),
    "TensorScatterAdd": _scattered("add"),
    "TensorScatterMax": _scattered("max"),
    "TensorScatterMin": _scattered("min"),
    "MatrixBandPart": (
        rule("Trilu", "input=input k=num_upper", when=_lower, upper=0),
        rule("Trilu", "input=input", when=_upper, upper=1, k=lambda op: -op.value("num_lower")),
    ),
    # made from nothing
    "ZerosLike": _filled_like(0),
    "OnesLike": _filled_like(1),
    "Fill": rule("Expand", "input=value shape=dims", ignores="index_type"),
    "RandomUniform": _drawn("RandomUniform", low=0.0, high=1.0),
    "RandomStandardNormal": _drawn("RandomNormal", mean=0.0, scale=1.0),
    "Multinomial": rule(
        "Multinomial",
        "input=logits",
        ignores="seed seed2 output_dtype",
        sample_size="num_samples",
        dtype=lambda op: CODES[op.get("output_dtype", "int64")],
    ),
    # data types, copies, constants
    "Cast": rule("Cast", "input=x", when=lambda op: not op.get("Truncate"), to=_dtype_code),
    "Identity": _IDENTITY,
    "Snapshot": _IDENTITY,
    "StopGradient": _IDENTITY,
    "PreventGradient": _IDENTITY,
    "Const": rule("Constant", "", value="value"),
}
