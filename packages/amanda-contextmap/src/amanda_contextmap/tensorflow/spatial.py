"""These operators work over the axes of space: convolutions, pooling, resizing.

Their tensors have channels last (NHWC) or first (NCHW), as ``data_format`` says; kernels are HWIO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda import ValueUnavailableError

from amanda_contextmap import windows
from amanda_contextmap.layout import CHANNELS_LAST, KERNEL_IO, Chain, Permute, Reshaped, Squeezed
from amanda_contextmap.rule import constant, rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amanda_contextmap.layout import Layout
    from amanda_contextmap.native import Native
    from amanda_contextmap.rule import Condition, Rule

    Attributes = Callable[[Native], Mapping[str, Any]]


def _channels_first(op: Native) -> bool:
    data_format: str = op.get("data_format", "NHWC")
    return data_format.startswith(("NC", "CHANNELS_FIRST"))


def activation(op: Native) -> Layout | None:
    """Return the layout of what has a batch, channels and axes of space."""
    return None if _channels_first(op) else CHANNELS_LAST


def _spatial(op: Native, values: Sequence[Any], rank: int) -> list[Any]:
    """Return what belongs to the axes of space, among values for all axes but one that is added."""
    return list(values[2:] if _channels_first(op) else values[1:-1])[-rank:]


def _padding(
    op: Native, data: str, reach: Sequence[int], strides: Sequence[int]
) -> Mapping[str, Any]:
    """Return paddings as numbers; ``SAME_UPPER`` where they depend on a size that is not known."""
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
    """Tell whether there is one axis for the batch; groups are told by the kernel's channels."""
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
    """Return the layout that has (H, W, C, M) as (C * M, 1, H, W)."""
    *window, channels, multiplier = op.sizes("filter")
    return Chain(
        Permute((-2, -1), (0, 1)),
        Reshaped((channels, multiplier, *window), (channels * multiplier, 1, *window)),
    )


_UNKNOWN = -1  # a size in the shape of a result that patterns tell


def _transposed_convolution(op: Native) -> Mapping[str, Any]:
    """Return the attributes of a transposed convolution, whose paddings are cut off the result."""
    kernel = op.sizes("filter", slice(-2))
    strides = _spatial(op, op.value("strides"), len(kernel))
    dilations = _dilations(op, len(kernel))
    reach = windows.span(kernel, dilations)
    rank = len(kernel)
    attrs = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    operand = _spatial(op, op.shape("out_backprop"), rank)
    result, same = _result(op, rank), op.value("padding") == "SAME"
    pads = _explicit(op, rank) if op.get("explicit_paddings") else None
    if None in operand or _UNKNOWN in result:
        if {*strides} != {1}:
            raise ValueUnavailableError("results of several sizes are possible")
        cut = windows.split([r - 1 if same else 0 for r in reach])
        return attrs | {"pads": pads or cut, "group": 1}
    whole = [(n - 1) * s + r for n, s, r in zip(operand, strides, reach, strict=True)]
    cut = windows.split([max(w - size, 0) for w, size in zip(whole, result, strict=True)])
    pads = pads or cut
    totals = [b + a for b, a in zip(pads[:rank], pads[rank:], strict=True)]
    missing = [size - w + total for size, w, total in zip(result, whole, totals, strict=True)]
    return attrs | {"pads": pads, "output_padding": missing, "group": 1}


def _result(op: Native, rank: int) -> list[int]:
    """Return the sizes of the result of a transposed convolution along the axes of space."""
    try:
        sizes: list[int] = op.value("input_sizes")
    except ValueUnavailableError:
        return [_UNKNOWN] * rank
    return sizes if len(sizes) == rank else _spatial(op, sizes, rank)


def _conv(
    attributes: Attributes,
    kernel: Layout | Callable[[Native], Layout],
    groups: Callable[[Native], int],
    when: Condition | None = None,
    **layouts: Callable[[Native], Layout | None],
) -> Rule:
    return rule(
        "Conv",
        "X=input W=filter",
        attributes,
        outputs="Y",
        layouts={"X": activation, "W": kernel, "Y": activation, **layouts},
        when=when,
        group=groups,
    )


def _of_depthwise(op: Native) -> int:
    return op.size("filter", -2)


_CONV = _conv(_convolution, KERNEL_IO, _groups, _one_batch)
_DEPTHWISE = _conv(_convolution, _depthwise_kernel, _of_depthwise)


def _conv_transpose(when: Condition | None = None) -> Rule:
    return rule(
        "ConvTranspose",
        "X=out_backprop W=filter",
        _transposed_convolution,
        outputs="Y",
        layouts={"X": activation, "W": KERNEL_IO, "Y": activation},
        when=when,
    )


# Convolutions that TensorFlow computes in several operators


def _first_of_space(op: Native) -> int:
    return 2 if _channels_first(op) else 1


def _adds(data: str) -> Condition:
    """Make the condition that the axis added to what is convolved is the first one of space."""
    return lambda op: bool(op.value("axis") % (op.rank(data) + 1) == _first_of_space(op))


def _removes(rank: int) -> Condition:
    """Make the condition that the axis removed from the result is the first one of space."""
    return lambda op: [n % rank for n in op.value("squeeze_dims")] == [_first_of_space(op)]


def _all(*conditions: Condition) -> Condition:
    return lambda op: all(condition(op) for condition in conditions)


_over_one_axis = _all(_adds("input"), _removes(4))
_begins_over_one_axis = _adds("input")


def _ends_over_one_axis(op: Native) -> bool:
    return op.size("input", _first_of_space(op)) == 1 and _removes(4)(op)


def _without_first(op: Native) -> Layout:
    """Return the layout that has two axes of space, the first one of size one, as one."""
    squeezed, turned = Squeezed(_first_of_space(op)), activation(op)
    return squeezed if turned is None else Chain(squeezed, turned)


def _dilated(op: Native) -> Mapping[str, Any]:
    """Return the attributes of a dilated convolution, as TensorFlow computes it in batches.

    Elements that are apart are brought together, and paddings added for that are cropped.
    """
    kernel = op.sizes("filter", slice(-2))
    rank = len(kernel)
    pairs = list(zip(op.value("paddings"), op.value("crops"), strict=True))[-rank:]
    return {
        "kernel_shape": kernel,
        "strides": _spatial(op, op.value("strides"), rank),
        "dilations": op.value("block_shape")[-rank:],
        "pads": [padding[end] - crop[end] for end in (0, 1) for padding, crop in pairs],
    }


def _added_alone(op: Native) -> bool:
    """Tell whether the first axis of space, which is added, has neither dilation nor paddings."""
    block, paddings, crops = map(op.value, ("block_shape", "paddings", "crops"))
    return len(block) == 2 and block[0] == 1 and not any(paddings[0] + crops[0])


def _only_dilated(op: Native) -> bool:
    """Tell whether the convolution in between has no paddings, strides or dilations of its own."""
    one = {*_dilations(op, 1), *op.value("strides")} == {1}
    valid = op.value("padding") == "VALID" and not op.get("explicit_paddings")
    return one and valid and all(n >= 0 for n in _dilated(op)["pads"])


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
        layouts={"X": activation, "Y": activation},
        dilations=lambda op: [1] * (op.rank("input") - 2),
    )


def _average_pool(data: str, when: Condition | None = None) -> Rule:
    return rule(
        "AveragePool",
        f"X={data}",
        _pool(data),
        when=when,
        outputs="Y",
        layouts={"X": activation, "Y": activation},
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
    """Tell whether the images are float32, as the result always is."""
    return op.dtype("images") == "float32"


def _coordinates(op: Native) -> str:
    centers = op.value("half_pixel_centers")
    if op.value("align_corners"):
        return "align_corners"
    return "half_pixel" if centers else "asymmetric"


def _nearest(op: Native) -> str:
    return "floor" if _coordinates(op) == "asymmetric" else "round_prefer_ceil"


def _cubic(op: Native) -> Mapping[str, Any]:
    """Return the attributes of a cubic interpolation.

    By the centers of pixels TensorFlow uses Keys' kernel, and leaves out what lies outside.
    """
    centers = op.value("half_pixel_centers")
    return {"cubic_coeff_a": -0.5 if centers else -0.75, "exclude_outside": int(centers)}


def _blocks(type: str, **attrs: Any) -> Rule:
    return rule(
        type,
        "input=input",
        outputs="output",
        layouts={"input": activation, "output": activation},
        blocksize="block_size",
        **attrs,
    )


TABLE: dict[str, Rule | tuple[Rule, ...]] = {
    "Conv2D": _CONV,
    "Conv3D": _CONV,
    "Conv": _CONV,
    "DepthwiseConv2dNative": _DEPTHWISE,
    "Conv2DBackpropInput": _conv_transpose(),
    "Conv3DBackpropInputV2": _conv_transpose(),
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
    "beginning_depthwise_conv1d": _conv(
        _convolution, _depthwise_kernel, _of_depthwise, _begins_over_one_axis, Y=_without_first
    ),
    "beginning_dilated_depthwise_conv1d": _conv(
        _dilated,
        _depthwise_kernel,
        _of_depthwise,
        _all(_begins_over_one_axis, _added_alone, _only_dilated),
        Y=_without_first,
    ),
    "ending_conv1d": _conv(
        _convolution,
        KERNEL_IO,
        _groups,
        _all(_ends_over_one_axis, _one_batch),
        X=_without_first,
    ),
    "dilated_conv": _conv(_dilated, KERNEL_IO, _groups, _PLAIN),
    "dilated_conv1d": _conv(_dilated, KERNEL_IO, _groups, _all(_over_one_axis, _PLAIN)),
    "dilated_depthwise_conv": _conv(_dilated, _depthwise_kernel, _of_depthwise, _only_dilated),
    "dilated_depthwise_conv1d": _conv(
        _dilated, _depthwise_kernel, _of_depthwise, _all(_over_one_axis, _only_dilated)
    ),
    "conv_transpose": _conv_transpose(),
    "conv_transpose1d": _conv_transpose(_all(_adds("out_backprop"), _removes(4))),
    "max_pool1d": _max_pool(_over_one_axis),
    "avg_pool1d": _average_pool("input", _over_one_axis),
}
