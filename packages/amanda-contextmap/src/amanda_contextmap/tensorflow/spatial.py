"""Operators over the axes of space: convolutions, pooling, resizing.

Their tensors have channels last (NHWC) or first (NCHW), as ``data_format`` says; kernels are HWIO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda import ValueUnavailableError

from amanda_contextmap import windows
from amanda_contextmap.layout import CHANNELS_LAST, KERNEL_IO, Chain, Permute, Reshaped
from amanda_contextmap.rule import constant, rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amanda.driving import Layout

    from amanda_contextmap.native import Native
    from amanda_contextmap.rule import Condition, Rule

    Attributes = Callable[[Native], Mapping[str, Any]]


def _channels_first(op: Native) -> bool:
    data_format: str = op.get("data_format", "NHWC")
    return data_format.startswith(("NC", "CHANNELS_FIRST"))


def _activation(op: Native) -> Layout | None:
    return None if _channels_first(op) else CHANNELS_LAST


def _spatial(op: Native, values: Sequence[Any], rank: int) -> list[Any]:
    """What belongs to the axes of space, among values for all axes; not to one that is added."""
    return list(values[2:] if _channels_first(op) else values[1:-1])[-rank:]


def _padding(
    op: Native, data: str, reach: Sequence[int], strides: Sequence[int]
) -> Mapping[str, Any]:
    """Paddings by number; left to ``SAME_UPPER`` where they depend on a size that is not known."""
    padding, _ = op.value("padding"), op.get("explicit_paddings")  # there, and empty, for others
    if padding == "VALID":
        return {"pads": [0] * 2 * len(reach)}
    if padding == "EXPLICIT":
        return {"pads": _explicit(op, len(reach))}
    totals = windows.same(_spatial(op, op.shape(data), len(reach)), reach, strides)
    if totals is None:
        return {"auto_pad": "SAME_UPPER"}
    return {"pads": windows.split(totals)}


def _explicit(op: Native, rank: int) -> list[int]:
    given = op.value("explicit_paddings")
    return _spatial(op, given[::2], rank) + _spatial(op, given[1::2], rank)


# Convolutions


def _one_batch(op: Native) -> bool:
    """One axis for the batch; groups are told by the channels of the kernel."""
    return bool(op.get("batch_dims", 1) == op.get("groups", 1) == 1)


def _convolution(op: Native) -> Mapping[str, Any]:
    kernel = op.sizes("filter", slice(-2))
    strides = _spatial(op, op.value("strides"), len(kernel))
    dilations = _dilations(op, len(kernel))
    reach = windows.span(kernel, dilations)
    return {
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": dilations,
        **_padding(op, "input", reach, strides),
    }


def _dilations(op: Native, rank: int) -> list[int]:
    given = op.get("dilations")
    return _spatial(op, given, rank) if given else [1] * rank


def _channels(op: Native, data: str) -> int:
    return op.size(data, 1 if _channels_first(op) else -1)


def _groups(op: Native) -> int:
    return _channels(op, "input") // op.size("filter", -2)


def _depthwise_kernel(op: Native) -> Layout:
    """(H, W, C, M) seen as (C * M, 1, H, W)."""
    *window, channels, multiplier = op.sizes("filter")
    return Chain(
        Permute((-2, -1), (0, 1)),
        Reshaped((channels, multiplier, *window), (channels * multiplier, 1, *window)),
    )


def _transposed_convolution(op: Native) -> Mapping[str, Any]:
    """That of a convolution's output back to its input, whose paddings are cut off the result.

    Where the size of the result is not known, it is the operand's times the stride.
    """
    kernel = op.sizes("filter", slice(-2))
    strides = _spatial(op, op.value("strides"), len(kernel))
    dilations = _dilations(op, len(kernel))
    reach = windows.span(kernel, dilations)
    padding, explicit = op.value("padding"), op.get("explicit_paddings")
    attrs: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": dilations,
        "group": 1,
    }
    try:
        sizes = _spatial(op, op.value("input_sizes"), len(kernel))
        operand = _spatial(op, op.sizes("out_backprop"), len(kernel))
    except ValueUnavailableError:
        same = padding == "SAME"
        return attrs | ({"auto_pad": "SAME_UPPER"} if same else {"pads": [0] * 2 * len(kernel)})
    whole = [(n - 1) * s + r for n, s, r in zip(operand, strides, reach, strict=True)]
    if explicit:
        pads = _explicit(op, len(kernel))
    else:
        pads = windows.split([max(w - size, 0) for w, size in zip(whole, sizes, strict=True)])
    totals = [b + a for b, a in zip(pads[: len(whole)], pads[len(whole) :], strict=True)]
    missing = [size - w + total for size, w, total in zip(sizes, whole, totals, strict=True)]
    return attrs | {"pads": pads, "output_padding": missing}


def _conv(
    attributes: Attributes,
    kernel: Layout | Callable[[Native], Layout],
    groups: Callable[[Native], int],
    when: Condition | None = None,
) -> Rule:
    return rule(
        "Conv",
        "X=input W=filter",
        attributes,
        outputs="Y",
        layouts={"X": _activation, "W": kernel, "Y": _activation},
        when=when,
        group=groups,
    )


def _of_depthwise(op: Native) -> int:
    return op.size("filter", -2)


_CONV = _conv(_convolution, KERNEL_IO, _groups, _one_batch)
_DEPTHWISE = _conv(_convolution, _depthwise_kernel, _of_depthwise)
_CONV_TRANSPOSE = rule(
    "ConvTranspose",
    "X=out_backprop W=filter",
    _transposed_convolution,
    outputs="Y",
    layouts={"X": _activation, "W": KERNEL_IO, "Y": _activation},
)


# Convolutions that TensorFlow computes in several operators


def _over_one_axis(op: Native) -> bool:
    """Whether the axis that is added, and taken away again, is the first one of space."""
    rank = op.rank("input") + 1
    added, removed = op.value("axis"), op.value("squeeze_dims")
    return [added % rank] == [axis % rank for axis in removed] == [2 if _channels_first(op) else 1]


def _dilated(op: Native) -> Mapping[str, Any]:
    """Elements that are apart are brought together, and paddings added for that are cropped."""
    kernel, dilations = op.sizes("filter", slice(-2)), op.value("block_shape")
    pairs = list(zip(op.value("paddings"), op.value("crops"), strict=True))
    return {
        "kernel_shape": kernel,
        "strides": _spatial(op, op.value("strides"), len(kernel)),
        "dilations": dilations,
        "pads": [padding[end] - crop[end] for end in (0, 1) for padding, crop in pairs],
    }


def _only_dilated(op: Native) -> bool:
    """Whether what is between adds no paddings, steps or distances of its own."""
    one = {*_dilations(op, 1), *op.value("strides")} == {1}
    valid = op.value("padding") == "VALID" and not op.get("explicit_paddings")
    return one and valid and all(n >= 0 for n in _dilated(op)["pads"])


def _all(*conditions: Condition) -> Condition:
    return lambda op: all(condition(op) for condition in conditions)


# Pooling


def _pool(data: str) -> Attributes:
    def attributes(op: Native) -> Mapping[str, Any]:
        rank = op.rank(data) - 2
        kernel = _spatial(op, op.value("ksize"), rank)
        strides = _spatial(op, op.value("strides"), rank)
        return {
            "kernel_shape": kernel,
            "strides": strides,
            "ceil_mode": 0,
            **_padding(op, data, kernel, strides),
        }

    return attributes


def _max_pool(when: Condition | None = None) -> Rule:
    return rule(
        "MaxPool",
        "X=input",
        _pool("input"),
        when=when,
        ignores="Targmax include_batch_in_index",  # of the indices, which are hidden
        outputs="Y",
        layouts={"X": _activation, "Y": _activation},
        dilations=lambda op: [1] * (op.rank("input") - 2),
    )


def _average_pool(data: str, when: Condition | None = None) -> Rule:
    return rule(
        "AveragePool",
        f"X={data}",
        _pool(data),
        when=when,
        outputs="Y",
        layouts={"X": _activation, "Y": _activation},
        count_include_pad=0,
    )


# Resizing


def _resize(
    mode: str, *attributes: Attributes, when: Condition | None = None, **attrs: Any
) -> Rule:
    return rule(
        "Resize",
        "X=images sizes=size",
        *attributes,
        when=when,
        outputs="Y",
        layouts={"X": CHANNELS_LAST, "Y": CHANNELS_LAST},
        mode=constant(mode),
        axes=[2, 3],
        coordinate_transformation_mode=_coordinates,
        **attrs,
    )


def _of_single_precision(op: Native) -> bool:
    """What is interpolated is of single precision, whatever the images are."""
    return op.dtype("images") == "float32"


def _coordinates(op: Native) -> str:
    centers = op.value("half_pixel_centers")
    if op.value("align_corners"):
        return "align_corners"
    return "half_pixel" if centers else "asymmetric"


def _nearest(op: Native) -> str:
    return "floor" if _coordinates(op) == "asymmetric" else "round_prefer_ceil"


def _cubic(op: Native) -> Mapping[str, Any]:
    """By the centers of pixels TensorFlow uses Keys' kernel, and leaves out what lies outside."""
    centers = op.value("half_pixel_centers")
    return {"cubic_coeff_a": -0.5 if centers else -0.75, "exclude_outside": int(centers)}


def _blocks(type: str, **attrs: Any) -> Rule:
    return rule(
        type,
        "input=input",
        outputs="output",
        layouts={"input": _activation, "output": _activation},
        blocksize="block_size",
        **attrs,
    )


TABLE: dict[str, Rule | tuple[Rule, ...]] = {
    "Conv2D": _CONV,
    "Conv3D": _CONV,
    "Conv": _CONV,
    "DepthwiseConv2dNative": _DEPTHWISE,
    "Conv2DBackpropInput": _CONV_TRANSPOSE,
    "Conv3DBackpropInputV2": _CONV_TRANSPOSE,
    "MaxPool": _max_pool(),
    "MaxPoolV2": _max_pool(),
    "MaxPool3D": _max_pool(),
    "MaxPoolWithArgmax": _max_pool(),
    "AvgPool": _average_pool("value"),
    "AvgPool3D": _average_pool("input"),
    "ResizeNearestNeighbor": _resize("nearest", nearest_mode=_nearest),
    "ResizeBilinear": _resize("linear", when=_of_single_precision),
    "ResizeBicubic": _resize("cubic", _cubic, when=_of_single_precision),
    "DepthToSpace": _blocks("DepthToSpace", mode=constant("DCR")),
    "SpaceToDepth": _blocks("SpaceToDepth"),
}

_PLAIN = _all(_only_dilated, _one_batch)

COMPOSITES: dict[str, Rule | tuple[Rule, ...]] = {
    "conv1d": _conv(_convolution, KERNEL_IO, _groups, _all(_over_one_axis, _one_batch)),
    "depthwise_conv1d": _conv(_convolution, _depthwise_kernel, _of_depthwise, _over_one_axis),
    "dilated_conv": _conv(_dilated, KERNEL_IO, _groups, _PLAIN),
    "dilated_conv1d": _conv(_dilated, KERNEL_IO, _groups, _all(_over_one_axis, _PLAIN)),
    "dilated_depthwise_conv": _conv(_dilated, _depthwise_kernel, _of_depthwise, _only_dilated),
    "dilated_depthwise_conv1d": _conv(
        _dilated, _depthwise_kernel, _of_depthwise, _all(_over_one_axis, _only_dilated)
    ),
    "max_pool1d": _max_pool(_over_one_axis),
    "avg_pool1d": _average_pool("input", _over_one_axis),
}
