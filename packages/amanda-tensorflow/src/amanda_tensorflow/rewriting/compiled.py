"""Some nodes have to stay under XLA when their function leaves it.

A function that calls back into Python cannot be compiled as a whole. Most of its operators run as
well without XLA, but some have no other kernel on this machine, or one that refuses their layout,
groups or dilations; some accept under XLA what their kernels take for an error; and the stateless
random operators give other numbers there. Each of these becomes a function that is compiled by
itself.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from amanda_tensorflow._internals import attributes, function_pb2, kernels
from amanda_tensorflow.graph.body import Body, control_inputs, data_inputs, set_inputs

if TYPE_CHECKING:
    from amanda_tensorflow.graph.frames import Frame

# They draw other numbers without XLA than with it.
_RANDOM = (
    "StatelessRandom",
    "StatelessTruncated",
    "StatelessParameterized",
    "StatelessMultinomial",
)
# XLA leaves out what is out of range, or gives some value for it; the kernels raise an error.
_LENIENT = frozenset(
    [
        "Gather",
        "GatherV2",
        "GatherNd",
        "ResourceGather",
        "ResourceGatherNd",
        "ScatterNd",
        "SparseSoftmaxCrossEntropyWithLogits",
        "CheckNumerics",
        "CheckNumericsV2",
    ]
)
_LENIENT_FAMILIES = ("TensorScatter", "ResourceScatter", "UnsortedSegment")
# Dividing integers by zero is an error without XLA.
_DIVISIONS = frozenset(["Div", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod"])
# They have kernels for channels in the second place (NCHW) on every device.
_ANY_LAYOUT = frozenset(["BiasAdd", "BiasAddGrad"])
_CHANNELS_LAST = (b"", b"NHWC", b"NDHWC")
# The result of a convolution's gradient with regard to its filter has the shape of the filter.
_FILTER_GRADIENT = "BackpropFilter"


def under_xla(value: Any) -> bool:
    """Tell whether a function or a call with these attributes is compiled."""
    return bool(attributes.XLA_COMPILE in value.attr and value.attr[attributes.XLA_COMPILE].b)


def keep_compiled(root: Frame, serial: int) -> list[Any]:
    """Compile by themselves the operators that need it, where functions are not compiled any more.

    Args:
        root: the outermost of the frames; what routines it is to run has been inserted.
        serial: a number that makes the names of functions unique.

    Returns:
        The FunctionDefs that the frames call from now on.
    """
    definitions: list[Any] = []
    for frame in _leaving(root, False, False):
        for name in frame.inputs.keys() & frame.running & frame.body.nodes.keys():
            node = frame.body.nodes[name]
            if node.op == "Assert":  # XLA leaves it out, so it never failed for the program
                producers = [tensor.rpartition(":")[0] for tensor in data_inputs(node)]
                waits = [n for n in producers if n in frame.body.nodes]
                set_inputs(node, (), [*control_inputs(node), *waits])
                node.op = "NoOp"
                node.attr.clear()
                frame.mark_edited()
            elif _needs_xla(frame.operations[name]):
                function = f"amanda_compiled_{serial}_{len(definitions)}"
                definitions.append(_compiled_alone(frame.body, node, function))
                frame.mark_edited()
    return definitions


def _leaving(frame: Frame, parent_was: bool, parent_stays: bool) -> list[Frame]:
    """List the frames that were compiled and are not any more."""
    marked = frame.definition is not None and under_xla(frame.definition)
    if frame.parent is not None:
        marked = marked or under_xla(frame.parent.body.nodes[frame.call])
    was = parent_was or marked
    stays = not frame.host and (marked or parent_stays)
    found = [frame] if was and not stays else []
    for name, children in frame.children.items():
        if name in frame.body.nodes:
            for child in children:
                found += _leaving(child, was, stays)
    return found


def _compiled_alone(body: Body, node: Any, function: str) -> Any:
    """Have a node call a function that does what it did, and return the FunctionDef."""
    inside: Any = type(node)()
    inside.CopyFrom(node)
    inside.attr.pop("_class", None)
    given, returned = [body.dtype(tensor) for tensor in data_inputs(node)], body.dtypes(node)
    arguments = [(f"argument_{index}", dtype) for index, dtype in enumerate(given)]
    set_inputs(inside, [f"{name}:0" for name, _ in arguments], ())
    outputs = [f"{node.name}:{index}" for index in range(len(returned))]
    alone = Body({node.name: inside}, arguments, outputs)
    alone.definition = function_pb2.FunctionDef()
    definition = alone.to_function(function)
    definition.attr[attributes.XLA_COMPILE].b = True

    node.op = "StatefulPartitionedCall"
    node.attr.clear()
    node.attr["Tin"].list.type.extend(given)
    node.attr["Tout"].list.type.extend(returned)
    node.attr["f"].func.name = function
    node.attr[attributes.XLA_COMPILE].b = True
    return definition


def _needs_xla(operation: Any) -> bool:
    op = operation.type
    if op.startswith(_RANDOM):
        return True
    if op in _LENIENT or op.startswith(_LENIENT_FAMILIES):
        return True
    if op in _DIVISIONS and operation.inputs[1].dtype.is_integer:
        return True
    return _refused_by_kernel(operation) or not _has_kernel(operation)


def _refused_by_kernel(operation: Any) -> bool:
    """Tell whether there may be a device whose kernel does not take these arguments."""
    op, attr = operation.type, operation.node_def.attr
    layout = attr["data_format"].s if "data_format" in attr else b""
    if op not in _ANY_LAYOUT and layout not in _CHANNELS_LAST:
        return True
    if not op.startswith(("Conv", "DepthwiseConv")) or op == "Conv2D":
        return False
    if "dilations" in attr and any(dilation != 1 for dilation in attr["dilations"].list.i):
        return True
    return op.startswith("Conv") and not _is_ungrouped(operation)


def _is_ungrouped(operation: Any) -> bool:
    """Tell whether a convolution, or a gradient of one, surely has one group of channels."""
    images, filters = operation.inputs[0], operation.inputs[1]
    if "BackpropInput" in operation.type:
        images = operation.outputs[0]
    elif _FILTER_GRADIENT in operation.type:
        filters = operation.outputs[0]
    if images.shape.rank is None or filters.shape.rank is None or filters.shape.rank < 2:
        return False
    channels = images.shape[-1]
    return channels is not None and channels == filters.shape[-2]


def _has_kernel(operation: Any) -> bool:
    """Tell whether an operator can run without XLA on a device of this machine."""
    known = _kernels(operation.type)
    attr = operation.node_def.attr
    return not known or any(
        all(_types(attr[name]) <= types for name, types in constraints if name in attr)
        for constraints in known
    )


def _types(value: Any) -> set[int]:
    return {*value.list.type} or {value.type}


@functools.cache
def _kernels(op: str) -> list[list[tuple[str, frozenset[int]]]]:
    """List for each kernel of an operator the data types that it takes, by attribute."""
    devices = {"CPU", "DEFAULT", *(d.device_type for d in tf.config.get_visible_devices())}
    return [
        [
            (constraint.name, frozenset(constraint.allowed_values.list.type))
            for constraint in kernel.constraint
            if constraint.allowed_values.list.type
        ]
        for kernel in kernels.get_registered_kernels_for_op(op).kernel
        if kernel.device_type in devices
    ]
