"""These formulas for operators of TensorFlow graphs follow the conventions of those for PyTorch.

Types are those of nodes. Weights of convolutions are (window..., input channels of a group,
output channels).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from amanda_tools.flops.table import Table

if TYPE_CHECKING:
    from amanda_tools.flops.table import Attrs, Shape, Shapes

TABLE = Table(
    views="""
        Bitcast EnsureShape ExpandDims Identity IdentityN PreventGradient Rank Reshape Shape ShapeN
        Size Squeeze StopGradient
    """,
    copies="""
        BatchToSpaceND BroadcastTo Cast Concat ConcatV2 DepthToSpace Diag DiagPart Fill Gather
        GatherNd GatherV2 InvertPermutation MirrorPad OnesLike Pack Pad PadV2 Range Reverse
        ResourceGather ResourceGatherNd ReverseV2 Roll ScatterNd Select SelectV2 Slice
        SpaceToBatchND SpaceToDepth Split SplitV StridedSlice TensorScatterUpdate Tile Transpose
        Unpack Where ZerosLike
    """,
)
formula = TABLE.formula


@formula("MatMul", operands=(0, 1))
def product(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """Each element of the output sums over the inner dimension."""
    return 2 * prod(outputs[0]) * inputs[0][-2 if attrs["transpose_a"] else -1]


@formula("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", operands=(0, 1))
def batch_product(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """Each element of the output sums over the inner dimension, in each matrix of a batch."""
    return 2 * prod(outputs[0]) * inputs[0][-2 if attrs["adj_x"] else -1]


@formula("Einsum", operands=(0, 1))
def einsum(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """Each element of the output sums over the labels that both operands have and it has not.

    A label of one operand alone is added up first. Without any to sum over together, this is no
    contraction: it has no FLOPs.
    """
    equation = attrs["equation"]
    terms, _, result = (equation.decode() if isinstance(equation, bytes) else equation).partition(
        "->"
    )
    labels = terms.split(",")
    if len(labels) == 1:
        return 0
    first, second = (_sizes(term, shape) for term, shape in zip(labels, inputs, strict=True))
    summed = (first.keys() & second.keys()) - set(result)
    return 2 * prod(outputs[0]) * prod(first[label] for label in summed) * bool(summed)


def _sizes(term: str, shape: Shape) -> dict[str, int]:
    """Return the size of each named label; dimensions of an ellipsis are in the output anyway."""
    before, _, after = term.partition("...")
    named = [*zip(before, shape, strict=False), *zip(after[::-1], shape[::-1], strict=False)]
    return dict(named)


@formula("Conv2D", "Conv3D", "Conv", operands=(0, 1))
def convolution(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """Each element of the output sums over a window of the channels of its group."""
    return 2 * prod(outputs[0]) * prod(inputs[1][:-1])


@formula("DepthwiseConv2dNative", operands=(0, 1))
def depthwise_convolution(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """Each element of the output sums over a window of one channel."""
    return 2 * prod(outputs[0]) * prod(inputs[1][:2])


@formula("Conv2DBackpropInput", "Conv3DBackpropInputV2", operands=(1, 2))
def transposed_convolution(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """Each element of the image, the last input, adds to a window of channels."""
    _, weight, image = inputs
    return 2 * prod(image) * prod(weight[:-1])
