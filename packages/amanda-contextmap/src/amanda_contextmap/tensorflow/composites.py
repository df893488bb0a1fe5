"""TensorFlow and Keras compute in several operators what ONNX has one for; these are the forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_contextmap.layout import Permute, Reshaped
from amanda_contextmap.pattern import pattern
from amanda_contextmap.rule import constant, rule
from amanda_contextmap.tensorflow import spatial

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda_contextmap.layout import Layout
    from amanda_contextmap.native import Native
    from amanda_contextmap.rule import Condition, Rule

_HALVED, _CUBE = "Mul(0.5, x)", "Mul(0.044715, Pow(x, 3))"
_GATED = "RealDiv(Relu6(AddV2(x, 3)), 6)"

_ZEROS = "ZerosLike(x)", "0"  # the latter where all sizes are known
_HARD_SHRINK = "SelectV2(Greater(Abs(x), _lambd), x, {})"
_NEGATIVE = "SelectV2(Less(x, _low), AddV2(x, _bias), {})"
_SOFT_SHRINK = f"SelectV2(Greater(x, _lambd), Sub(x, _bias), {_NEGATIVE})"

_MEAN = "Mean(x, _axes, keep_dims=True)"
_VARIANCE = f"Mean(SquaredDifference(x, StopGradient({_MEAN})), _axes, keep_dims=True)"
_INVERSE = f"Rsqrt(AddV2({_VARIANCE}, _epsilon))"
_SCALED = f"Mul({_INVERSE}, Reshape(scale, _shape))"
_GIVEN_INVERSE = "Rsqrt(AddV2(variance, _epsilon))"
_GIVEN_SCALED = f"Mul({_GIVEN_INVERSE}, scale)"


def _normalized(factor: str, offset: str | None) -> str:
    """Write a tensor times a factor less its mean times that, as Keras has it."""
    mean = f"Mul(Neg({_MEAN}), {factor})"
    rest = mean if offset is None else f"AddV2({mean}, Reshape({offset}, _shape))"
    return f"AddV2(Mul(x, {factor}), {rest})"


def _by_statistics(factor: str, offset: str | None) -> str:
    """Write a tensor normalized by a mean and a variance that are given, as TensorFlow has it."""
    rest = f"Mul(Neg(mean), {factor})" if offset is None else f"Sub({offset}, Mul(mean, {factor}))"
    return f"AddV2(Mul(x, {factor}), {rest})"


def _over_one_axis(kind: str, data: str, *operands: str) -> str:
    """Write an operator over one axis, as TensorFlow computes it: over two, one of size one."""
    return f"Squeeze({kind}({', '.join([f'ExpandDims({data}, _axis)', *operands])}))"


def _dilated(convolution: str) -> str:
    """Write a convolution of every nth element, as TensorFlow has it where its kernels cannot."""
    return f"BatchToSpaceND({convolution}, _block_shape, _crops)"


def _over_one_axis_back(kind: str, sizes: str) -> str:
    """Write a transposed convolution over one axis, which takes the sizes of its result first."""
    return f"Squeeze({kind}({sizes}, {_KERNEL}, ExpandDims(out_backprop, _axis)))"


_WHOLE = "begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0"
_LOGITS = "Mul(Einsum(q, k, equation='BTNH,BSNH->BNTS'), _scale)"


def _attention(logits: str) -> str:
    """Write what Keras computes of the products of queries and keys."""
    return f"Einsum(Softmax({logits}), v, equation='BNTS,BSNH->BTNH')"


def _causal(everywhere: str, sizes: str) -> str:
    """Write attention where the products with what comes later are far below all others."""
    length, other = (
        f"StridedSlice({sizes}, {i}, {i + 1}, 1, shrink_axis_mask=1, {_WHOLE})" for i in (2, 3)
    )
    lower = f"MatrixBandPart(Fill(Pack({length}, {other}, axis=0), 1), -1, 0)"
    of_all_heads = (
        f"StridedSlice({lower}, 0, 0, 1, begin_mask=12, end_mask=12, ellipsis_mask=0,"
        " new_axis_mask=3, shrink_axis_mask=0)"
    )
    return _attention(f"SelectV2(LogicalAnd({everywhere}, {of_all_heads}), {_LOGITS}, _far_below)")


_SPREAD = "SpaceToBatchND(input, _block_shape, _paddings)"
_KERNEL = "ExpandDims(filter, 0)"
_BEGUN = "ExpandDims(input, _axis)"
_DEPTHWISE = "DepthwiseConv2dNative"
_CONV_BACK = "Conv2DBackpropInput | Conv3DBackpropInputV2"
_SIZES = "[input_sizes]", "_input_sizes", "input_sizes"  # computed, constant, and not known


PATTERNS = [
    pattern("dilated_conv1d", _dilated(_over_one_axis("Conv2D", _SPREAD, _KERNEL))),
    pattern("dilated_depthwise_conv1d", _dilated(_over_one_axis(_DEPTHWISE, _SPREAD, _KERNEL))),
    pattern(
        "beginning_dilated_depthwise_conv1d",
        _dilated(f"{_DEPTHWISE}({_SPREAD.replace('input', _BEGUN)}, {_KERNEL})"),
    ),
    pattern("dilated_conv", _dilated(f"(Conv2D | Conv3D)({_SPREAD}, filter)")),
    pattern("dilated_depthwise_conv", _dilated(f"{_DEPTHWISE}({_SPREAD}, filter)")),
    pattern("conv1d", _over_one_axis("Conv2D", "input", _KERNEL)),
    pattern("depthwise_conv1d", _over_one_axis(_DEPTHWISE, "input", _KERNEL)),
    # of a separable convolution, which adds the axis before the one and removes it after the other
    pattern("beginning_depthwise_conv1d", f"{_DEPTHWISE}({_BEGUN}, {_KERNEL})"),
    pattern("ending_conv1d", f"Squeeze(Conv2D(input, {_KERNEL}))"),
    pattern("max_pool1d", _over_one_axis("MaxPool", "input")),
    pattern("avg_pool1d", _over_one_axis("AvgPool", "input")),
    pattern(
        "conv_transpose1d",
        *(_over_one_axis_back("Conv2DBackpropInput", sizes) for sizes in _SIZES),
    ),
    pattern("conv_transpose", f"({_CONV_BACK})({_SIZES[0]}, filter, out_backprop)"),
    pattern(
        "layer_norm",
        _normalized(_SCALED, "bias"),
        _normalized(_SCALED, None),
        _normalized(_INVERSE, "bias"),
        _normalized(_INVERSE, None),
    ),
    pattern(
        "batch_norm",
        _by_statistics(_GIVEN_SCALED, "offset"),
        _by_statistics(_GIVEN_SCALED, None),
        _by_statistics(_GIVEN_INVERSE, "offset"),
        _by_statistics(_GIVEN_INVERSE, None),
    ),
    pattern(
        "rms_norm",
        "Mul(Mul(x, Rsqrt(AddV2(Mean(Square(x), _axes, keep_dims=True), _epsilon))), scale)",
    ),
    pattern("attention", _attention(_LOGITS)),
    pattern(
        "causal_attention",
        _causal(f"Fill(Shape({_LOGITS}), 1)", f"Shape({_LOGITS})"),
        _causal("1", "_sizes"),  # where all sizes are known
    ),
    pattern(
        "gelu",
        f"Mul({_HALVED}, Erfc(Mul(Neg(x), 0.70710678)))",
        f"Mul({_HALVED}, AddV2(1, Erf(Mul(x, 0.70710678))))",
        f"Mul({_HALVED}, AddV2(1, Erf(RealDiv(x, 1.41421356))))",
    ),
    pattern(
        "gelu_by_tanh",
        f"Mul({_HALVED}, AddV2(1, Tanh(Mul(0.79788456, AddV2(x, {_CUBE})))))",
    ),
    pattern(
        "silu",
        "IdentityN(Mul(x, Sigmoid(Mul(_beta, x))), x, _beta)",  # has a gradient of its own
        "Mul(x, Sigmoid(x))",
    ),
    pattern("hard_silu", f"Mul(x, {_GATED})"),
    pattern("hard_sigmoid", _GATED),
    pattern("celu", "AddV2(Maximum(x, 0), Mul(_alpha, Expm1(RealDiv(Minimum(x, 0), _alpha))))"),
    pattern("elu", "SelectV2(Greater(x, 0), Elu(x), Mul(_alpha, Elu(x)))"),
    pattern("hard_shrink", *(_HARD_SHRINK.format(zero) for zero in _ZEROS)),
    pattern("soft_shrink", *(_SOFT_SHRINK.format(zero) for zero in _ZEROS)),
    pattern("clip", "Maximum(Minimum(x, _max), _min)"),
    pattern("reshape", "Reshape(data, [shape])"),
    pattern("softmax", "Transpose(Softmax(Transpose(x, _perm)), _perm_back)"),
]
"""In the order in which they are looked for: what has others as its parts comes before them."""


def _trailing(op: Native) -> bool:
    """Tell whether the last axes are normalized, and all of them scaled."""
    rank = op.rank("x")
    axes = op.axes("axes", "x")
    return sorted(axes) == list(range(rank - len(axes), rank)) and all(
        op.rank(name) == len(axes) for name in ("scale", "bias") if op.places(name)
    )


_HEADS = Permute(1, 2)  # (batch, length, heads, size)


_OF_CHANNELS = {"scale": "scale", "B": "offset", "input_mean": "mean", "input_var": "variance"}


def _channels(op: Native) -> int | None:
    """Return the axis of the channels, which have numbers of their own to be normalized by."""
    axes = {_lies_along(op, name) for name in _OF_CHANNELS.values() if op.places(name)}
    return axes.pop() if len(axes) == 1 else None


def _lies_along(op: Native, name: str) -> int | None:
    sizes, rank = op.sizes(name), op.rank("x")
    if len(sizes) == 1:
        sizes = [1] * (rank - 1) + sizes
    long = [axis for axis, size in enumerate(sizes) if size != 1]
    if len(sizes) != rank or len(long) != 1 or long == [0]:
        return None
    return long[0] if sizes[long[0]] == op.size("x", long[0]) else None


def _channels_second(op: Native) -> Layout | None:
    axis = _channels(op)
    return None if axis in (None, 1) else Permute(axis, 1)


def _by_channel(name: str) -> Callable[[Native], Layout | None]:
    def layout(op: Native) -> Layout | None:
        if not op.places(name) or op.rank(name) == 1:
            return None
        return Reshaped([-1 if size != 1 else 1 for size in op.sizes(name)], (-1,))

    return layout


def _attention_rule(*, is_causal: int, when: Condition | None = None, ignores: str = "") -> Rule:
    return rule(
        "Attention",
        "Q=q K=k V=v",
        outputs="Y",
        layouts=dict.fromkeys(["Q", "K", "V", "Y"], _HEADS),
        when=when,
        ignores=ignores,
        is_causal=is_causal,
        scale="scale",
    )


def _nothing_later(op: Native) -> bool:
    """Tell whether what comes later counts for nothing, and the mask is for these lengths."""
    sizes = op.get("sizes")
    lengths = None if sizes is None else [op.size("q", 1), op.size("k", 1)]
    return op.value("far_below") < -1e30 and (sizes is None or sizes[2:] == lengths)


def _perm(op: Native) -> list[int]:
    perm: list[int] = op.value("perm")
    return perm


def _there_and_back(op: Native) -> bool:
    perm = _perm(op)
    return [perm[axis] for axis in op.value("perm_back")] == list(range(len(perm)))


def _first_normalized(op: Native) -> int:
    return min(op.axes("axes", "x"))


TABLE: dict[str, Rule | tuple[Rule, ...]] = {
    **spatial.COMPOSITES,
    "layer_norm": rule(
        "LayerNormalization",
        "X=x Scale=scale B=bias",
        outputs="Y",
        when=_trailing,
        ignores="shape",
        axis=_first_normalized,
        epsilon="epsilon",
    ),
    "batch_norm": rule(
        "BatchNormalization",
        "X=x scale=scale B=offset input_mean=mean input_var=variance",
        outputs="Y",
        layouts={
            **dict.fromkeys(["X", "Y"], _channels_second),
            **{role: _by_channel(name) for role, name in _OF_CHANNELS.items()},
        },
        when=lambda op: _channels(op) is not None,
        epsilon="epsilon",
        training_mode=0,
    ),
    "rms_norm": rule(
        "RMSNormalization",
        "X=x scale=scale",
        outputs="Y",
        when=_trailing,
        axis=_first_normalized,
        epsilon="epsilon",
    ),
    "attention": _attention_rule(is_causal=0),
    "causal_attention": _attention_rule(
        when=_nothing_later, ignores="out_type index_type Tindex", is_causal=1
    ),
    "gelu": rule("Gelu", "X=x", approximate=constant("none")),
    "gelu_by_tanh": rule("Gelu", "X=x", approximate=constant("tanh")),
    "silu": rule("Swish", "X=x", alpha=lambda op: op.get("beta", 1.0)),
    "hard_silu": rule("HardSwish", "X=x"),
    "hard_sigmoid": rule("HardSigmoid", "X=x", alpha=1 / 6, beta=0.5),
    "celu": rule("Celu", "X=x", alpha="alpha"),
    "elu": rule("Elu", "X=x", alpha="alpha"),
    "hard_shrink": rule("Shrink", "input=x", lambd="lambd", bias=0.0),
    "soft_shrink": rule(
        "Shrink",
        "input=x",
        when=lambda op: bool(op.value("low") == -op.value("lambd")),
        lambd="lambd",
        bias="bias",
    ),
    "clip": rule(
        "Clip", "input=x min=min max=max", when=lambda op: bool(op.value("min") <= op.value("max"))
    ),
    "reshape": rule("Reshape", "data=data", shape="shape"),
    "softmax": rule("Softmax", "input=x", when=_there_and_back, axis=lambda op: _perm(op)[-1]),
}
