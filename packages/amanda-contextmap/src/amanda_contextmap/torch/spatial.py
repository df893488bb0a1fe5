"""These operators work over the axes of space: convolutions, pooling, resizing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda_contextmap import windows
from amanda_contextmap.layout import UNBATCHED
from amanda_contextmap.native import listed
from amanda_contextmap.rule import constant, rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amanda_contextmap.layout import Layout
    from amanda_contextmap.native import Native
    from amanda_contextmap.rule import Rule

    Attributes = Callable[[Native], Mapping[str, Any]]


def _each(value: Any, rank: int) -> list[Any]:
    """List one number for each axis of space, where PyTorch takes one for all of them."""
    values = listed(value)
    return values * rank if len(values) == 1 else values


def _batched(operand: str, rank: int) -> Callable[[Native], Layout | None]:
    """Return the layout of one example that is in no batch, which PyTorch also takes."""
    return lambda op: UNBATCHED if op.rank(operand) == rank + 1 else None


# Convolutions


def _convolution(op: Native) -> Mapping[str, Any]:
    kernel = op.sizes("weight", slice(2, None))
    rank = len(kernel)
    dilations = _each(op.value("dilation"), rank)
    padding = op.value("padding")
    if padding == "same":
        pads = windows.split([reach - 1 for reach in windows.span(kernel, dilations)])
    elif padding == "valid":
        pads = [0] * 2 * rank
    else:
        pads = windows.symmetric(_each(padding, rank))
    return {
        "kernel_shape": kernel,
        "strides": _each(op.value("stride"), rank),
        "pads": pads,
        "dilations": dilations,
        "group": op.value("groups"),
    }


def _transposed_convolution(op: Native) -> Mapping[str, Any]:
    padding = _each(op.value("output_padding"), op.rank("weight") - 2)
    return {**_convolution(op), "output_padding": padding}


def _conv_layout(op: Native) -> Layout | None:
    return UNBATCHED if op.rank("input") < op.rank("weight") else None


def _conv(type: str, attributes: Attributes, transposed: bool, ignores: str = "") -> Rule:
    return rule(
        type,
        "X=input W=weight B=bias",
        attributes,
        outputs="Y",
        layouts={"X": _conv_layout, "Y": _conv_layout},
        when=lambda op: op.get("transposed", transposed) is transposed,
        ignores=f"{ignores} allow_tf32",
    )


_CONV = _conv("Conv", _convolution, False, ignores="output_padding")
_CONV_TRANSPOSE = _conv("ConvTranspose", _transposed_convolution, True)


# Pooling


def _pool(rank: int) -> Attributes:
    def attributes(op: Native) -> Mapping[str, Any]:
        kernel = _each(op.value("kernel_size"), rank)
        attrs = {
            "kernel_shape": kernel,
            "strides": _each(op.value("stride") or kernel, rank),
            "pads": windows.symmetric(_each(op.value("padding"), rank)),
            "ceil_mode": int(op.value("ceil_mode")),
        }
        if op.has("dilation"):
            attrs["dilations"] = _each(op.value("dilation"), rank)
        if op.has("count_include_pad"):
            attrs["count_include_pad"] = int(op.value("count_include_pad"))
        return attrs

    return attributes


def _adaptive(rank: int) -> Attributes:
    """Return the attributes of a pool whose outputs have a size that divides the input's."""

    def attributes(op: Native) -> Mapping[str, Any]:
        sizes = op.sizes("self", slice(-rank, None))
        outputs = _each(op.value("output_size"), rank)
        window = [size // output for size, output in zip(sizes, outputs, strict=True)]
        return {
            "kernel_shape": window,
            "strides": window,
            "pads": [0] * 2 * rank,
            "ceil_mode": 0,
        }

    return attributes


def _to_one(rank: int) -> Callable[[Native], bool]:
    return lambda op: _each(op.value("output_size"), rank) == [1] * rank


def _divides(rank: int) -> Callable[[Native], bool]:
    def divides(op: Native) -> bool:
        sizes = op.sizes("self", slice(-rank, None))
        outputs = _each(op.value("output_size"), rank)
        return not any(size % output for size, output in zip(sizes, outputs, strict=True))

    return divides


def _pools(rank: int) -> dict[str, Rule | tuple[Rule, ...]]:
    batched = _batched("self", rank)
    options: dict[str, Any] = {"outputs": "Y", "layouts": {"X": batched, "Y": batched}}
    roles, pool, adaptive = "X=self", _pool(rank), _adaptive(rank)
    to_one, divides = _to_one(rank), _divides(rank)
    maximum = rule("MaxPool", roles, pool, **options)
    adaptive_average = (
        rule("GlobalAveragePool", roles, when=to_one, **options),
        rule("AveragePool", roles, adaptive, when=divides, count_include_pad=0, **options),
    )
    adaptive_maximum = (
        rule("GlobalMaxPool", roles, when=to_one, **options),
        rule(
            "MaxPool",
            roles,
            adaptive,
            when=divides,
            dilations=lambda op: [1] * rank,
            **options,
        ),
    )
    plain = rule(
        "AveragePool", roles, pool, when=lambda op: not op.has("divisor_override"), **options
    )
    return {
        f"max_pool{rank}d": maximum,
        f"max_pool{rank}d_with_indices": maximum,
        f"avg_pool{rank}d": plain,
        f"adaptive_avg_pool{rank}d": adaptive_average,
        f"_adaptive_avg_pool{rank}d": adaptive_average,
        f"adaptive_max_pool{rank}d": adaptive_maximum,
    }


# Resizing


def _resize(mode: str, **attrs: Any) -> tuple[Rule, ...]:
    """Return the rules of interpolation, with the size of the output given or a factor."""

    def operand_of(op: Native) -> str:
        return "self" if op.has("self") else "input"

    def attributes(op: Native) -> Mapping[str, Any]:
        factors = op.has("scale_factors")
        wanted = op.value("scale_factors" if factors else "output_size")
        axes = list(range(2, 2 + len(wanted)))
        if factors and op.get("align_corners"):  # where ONNX takes the factors from the sizes
            sizes = op.sizes(operand_of(op), slice(2, None))
            factors, wanted = False, [int(n * f) for n, f in zip(sizes, wanted, strict=True)]
        return {"axes": axes, "scales" if factors else "sizes": wanted}

    return tuple(
        rule(
            "Resize",
            f"X={operand}",
            attributes,
            when=_interpolated(operand),
            mode=constant(mode),
            **attrs,
        )
        for operand in ("self", "input")
    )


def _interpolated(operand: str) -> Callable[[Native], bool]:
    """Make the condition that it is of floats: integers are rounded, where ONNX truncates."""
    return lambda op: (
        op.has(operand) and (op.get("align_corners") is None or "float" in op.dtype(operand))
    )


def _sampled(op: Native) -> bool:
    """Tell whether ONNX samples alike: cubic interpolation next to a border differs."""
    return not (op.value("interpolation_mode") == 2 and op.value("padding_mode") == 1)


def _pixels(op: Native) -> Layout | None:
    return UNBATCHED if op.rank("self") == 3 else None


def _corners(op: Native) -> str:
    return "align_corners" if op.value("align_corners") else "half_pixel"


_NEAREST = _resize(  # by the corners of pixels
    "nearest",
    coordinate_transformation_mode=constant("asymmetric"),
    nearest_mode=constant("floor"),
)
_NEAREST_EXACT = _resize(  # by their centers
    "nearest",
    coordinate_transformation_mode=constant("half_pixel"),
    nearest_mode=constant("round_prefer_ceil"),
)
_INTERPOLATED = _resize("linear", coordinate_transformation_mode=_corners)
# Weights that lie outside are left out, and the others sum to one.
_ANTIALIASED: dict[str, Any] = {
    "antialias": 1,
    "coordinate_transformation_mode": _corners,
    "exclude_outside": 1,
}
_CUBIC = _resize("cubic", coordinate_transformation_mode=_corners, cubic_coeff_a=-0.75)


TABLE: dict[str, Rule | tuple[Rule, ...]] = {
    "conv1d": _CONV,
    "conv2d": _CONV,
    "conv3d": _CONV,
    "conv_transpose1d": _CONV_TRANSPOSE,
    "conv_transpose2d": _CONV_TRANSPOSE,
    "conv_transpose3d": _CONV_TRANSPOSE,
    "convolution": (_CONV, _CONV_TRANSPOSE),
    "_convolution": (_CONV, _CONV_TRANSPOSE),
    **_pools(1),
    **_pools(2),
    **_pools(3),
    "upsample_nearest1d": _NEAREST,
    "upsample_nearest2d": _NEAREST,
    "upsample_nearest3d": _NEAREST,
    "_upsample_nearest_exact1d": _NEAREST_EXACT,
    "_upsample_nearest_exact2d": _NEAREST_EXACT,
    "_upsample_nearest_exact3d": _NEAREST_EXACT,
    "upsample_linear1d": _INTERPOLATED,
    "upsample_bilinear2d": _INTERPOLATED,
    "upsample_trilinear3d": _INTERPOLATED,
    "upsample_bicubic2d": _CUBIC,
    "_upsample_bilinear2d_aa": _resize("linear", **_ANTIALIASED),
    "_upsample_bicubic2d_aa": _resize("cubic", cubic_coeff_a=-0.5, **_ANTIALIASED),
    "pixel_shuffle": rule(
        "DepthToSpace",
        "input=self",
        outputs="output",
        layouts={"input": _pixels, "output": _pixels},
        when=lambda op: op.rank("self") in (3, 4),
        blocksize="upscale_factor",
        mode=constant("CRD"),
    ),
    "col2im": rule(
        "Col2Im",
        "input=self image_shape=output_size block_shape=kernel_size",
        when=lambda op: op.rank("self") == 3,
        strides="stride",
        dilations="dilation",
        pads=lambda op: windows.symmetric(op.value("padding")),
    ),
    "affine_grid_generator": rule(
        "AffineGrid",
        "theta=theta size=size",
        align_corners=lambda op: int(op.value("align_corners")),
    ),
    "grid_sampler": rule(
        "GridSample",
        "X=input grid=grid",
        when=_sampled,
        mode=lambda op: ("linear", "nearest", "cubic")[op.value("interpolation_mode")],
        padding_mode=lambda op: ("zeros", "border", "reflection")[op.value("padding_mode")],
        align_corners=lambda op: int(op.value("align_corners")),
    ),
}
