"""Formulas for the operators of TensorFlow graphs, by the conventions of those for PyTorch.

Types are those of nodes. Weights of convolutions are (window..., input channels of a group,
output channels).
"""

from __future__ import annotations

import sys
from math import prod
from typing import TYPE_CHECKING, Any

from amanda_tools.flops.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amanda_tools.flops.table import Attrs, Shape, Shapes

# What shows a variable in another form.
_FORMS = frozenset({"Cast", "ExpandDims", "Identity", "Reshape", "Squeeze", "Transpose"})


class _TensorFlowTable(Table):
    """Reads TensorFlow's tensors: symbolic ones of a graph, and eager ones in routines."""

    def parameter(self, tensor: Any) -> tuple[Any, int] | None:
        """The handle of the variable that a symbolic tensor is, or was read from."""
        if tensor.dtype.name == "resource":
            return _variable(_origin(tensor))
        while (operation := _operation(tensor)) is not None:
            if operation.type == "ReadVariableOp":
                return _origin(operation.inputs[0]), prod(tensor.shape)
            if operation.type in ("Variable", "VariableV2"):
                return tensor, prod(tensor.shape)
            if operation.type in _FORMS:
                tensor = operation.inputs[0]
            elif (outside := _origin(tensor)) is not tensor:
                tensor = outside
            else:
                return None
        return None

    def nbytes(self, tensors: Iterable[Any]) -> int:
        """The size of the elements."""
        return sum([tensor.dtype.size * prod(tensor.shape) for tensor in tensors])


def _variable(handle: Any) -> tuple[Any, int] | None:
    """A handle and the elements of its variable; None if it is the handle of something else."""
    operation = _operation(handle)
    if operation is None:
        data = handle._handle_data
        shape = data.shape_and_type[0].shape if data is not None and data.is_set else None
    else:
        shape = operation.get_attr("shape") if operation.type == "VarHandleOp" else None
    return None if shape is None else (handle, prod(dim.size for dim in shape.dim))


def _operation(tensor: Any) -> Any:
    """What computes a symbolic tensor; None for any other one."""
    tensorflow = sys.modules["tensorflow"]
    return tensor.op if tensorflow.is_symbolic_tensor(tensor) else None


def _origin(tensor: Any) -> Any:
    """What a function captures as this tensor, the tensor itself if it captures nothing so."""
    operation = _operation(tensor)
    if operation is None or operation.type != "Placeholder":
        return tensor
    captures = getattr(operation.graph, "captures", ())
    return next((_origin(outer) for outer, inner in captures if inner is tensor), tensor)


TABLE = _TensorFlowTable(
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
    """The same for each of a batch."""
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
    """The size of each named label; the dimensions of an ellipsis are in the output anyway."""
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
