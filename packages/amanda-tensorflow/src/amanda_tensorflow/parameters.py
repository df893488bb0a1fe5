"""This tells core what a tensor was read, cast or viewed of; core follows that to a variable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from amanda.driving import Parameter, TensorInfo

from amanda_tensorflow._internals import func_graph, handle_data_util
from amanda_tensorflow.graph.called_functions import calls_functions
from amanda_tensorflow.graph.node_types import READING, STRUCTURE
from amanda_tensorflow.values import outer_of

if TYPE_CHECKING:
    from collections.abc import Sequence

# These operators show a parameter in another form, and this is which of their inputs it is; None
# for those that have an output for each input.
_VIEWS: dict[str, int | None] = {
    "BatchToSpaceND": 0,
    "Cast": 0,
    "EnsureShape": 0,
    "Enter": 0,
    "ExpandDims": 0,
    "Identity": 0,
    "IdentityN": None,
    "Reshape": 0,
    "Slice": 0,
    "SpaceToBatchND": 0,
    "Split": 1,
    "SplitV": 0,
    "Squeeze": 0,
    "StopGradient": 0,
    "StridedSlice": 0,
    "Transpose": 0,
    "Unpack": 0,
}


def describe(tensor: Any) -> TensorInfo:
    """Tell shape, dtype, size and device of a tensor, as far as a symbolic one has them."""
    dtype = tf.as_dtype(tensor.dtype).base_dtype
    return _info(tensor.shape, dtype, tensor.device.rpartition("device:")[2] or None)


def _info(shape: Any, dtype: Any, device: str | None) -> TensorInfo:
    sizes = None if shape.rank is None else tuple(shape.as_list())
    known = shape.is_fully_defined() and dtype.size > 0  # strings differ in size
    nbytes = shape.num_elements() * dtype.size if known else None
    return TensorInfo(sizes, dtype.name, nbytes, device)


def is_parameter_itself(found: Any) -> bool:
    """Tell whether a tensor is the handle of a variable or resource, or a reference variable."""
    if not tf.is_symbolic_tensor(found):
        return bool(found.dtype == tf.resource)
    if found.op.type == "Placeholder":  # an argument may be a handle
        return found.dtype == tf.resource and outer_of(found) is None
    return found.op.type in ("VarHandleOp", "VariableV2", "Variable")


def read_from(found: Any) -> Any:
    """Return what a symbolic tensor was read, captured, cast or viewed of; None if computed."""
    if not tf.is_symbolic_tensor(found):
        return None
    operation = found.op
    if operation.type == "ReadVariableOp":
        return operation.inputs[0]
    if operation.type == "Placeholder":
        return outer_of(found)
    if operation.type not in _VIEWS:
        return None
    position = _VIEWS[operation.type]
    return operation.inputs[found.value_index if position is None else position]


def is_computed_of_parameters(tensor: Any) -> bool:
    """Tell whether a symbolic tensor is computed of variables and constants alone."""
    waiting, met, reads = [tensor], {id(tensor)}, False
    while waiting:
        found = waiting.pop()
        if is_parameter_itself(found):
            reads = True
        elif tf.is_symbolic_tensor(found):
            before = _computed_of(found)
            if before is None:
                return False
            waiting += [each for each in before if id(each) not in met]
            met.update(map(id, before))
    return reads


def _computed_of(found: Any) -> Sequence[Any] | None:
    """Return what a symbolic tensor is computed of; None if more than that decides what it is."""
    operation = found.op
    if operation.type == "Placeholder":
        outer = outer_of(found)
        return None if outer is None else [outer]
    decides = operation.op_def.is_stateful and operation.type not in READING
    if decides or operation.type in STRUCTURE or calls_functions(operation.type):
        return None
    inputs: Sequence[Any] = operation.inputs
    return inputs


def parameter_info(found: Any, tensor: Any) -> Parameter | None:
    """Return what tools are told of a variable; None for a table, an iterator and the like.

    Args:
        found: the handle of a resource variable, the tensor of any other one.
        tensor: the tensor that tools ask about.
    """
    info = describe(found)
    if found.dtype == tf.resource:
        data = handle_data_util.get_handle_data(found)
        if data is None or len(data.shape_and_type) != 1:
            return None
        (held,) = data.shape_and_type
        info = _info(tf.TensorShape(held.shape), tf.as_dtype(held.dtype), info.device)
    return Parameter(found, info, _trainable(tensor, found))


def handle_of(variable: Any) -> Any:
    """Return a variable's handle, or the tensor of a reference variable, which has no handle."""
    handle = getattr(variable, "handle", None)
    return variable.op.outputs[0] if handle is None else handle


def _trainable(tensor: Any, source: Any) -> bool | None:
    """Tell whether the variable is to be trained; None where its object is not to be found."""
    graph = tensor.graph if tf.is_symbolic_tensor(tensor) else None
    while graph is not None:
        for variable in _variables(graph):
            if handle_of(variable) is source:
                return bool(variable.trainable)
        graph = getattr(graph, "outer_graph", None)
    return None


def _variables(graph: Any) -> Sequence[Any]:
    """List the variables of a graph, as far as they are still there."""
    if not isinstance(graph, func_graph.FuncGraph):
        found: Sequence[Any] = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
        return found
    try:
        return tuple(graph.variables)
    except AssertionError:  # one was deleted
        return ()
