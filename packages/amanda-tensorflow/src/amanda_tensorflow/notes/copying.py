"""Tensors of a graph are copied, so that they can be told apart."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from amanda_tensorflow._internals import array_ops, ops, record


def copy_of(tensor: Any) -> Any:
    """Copy a tensor as ``tf.identity`` does, in the graph that is being built.

    Training steps have hundreds of them, and the general way to make a node, which asks what a
    program may have given it, and tells tapes, takes three times as long.
    """
    held_elsewhere = tensor.dtype in (tf.resource, tf.variant)  # handles have more to copy
    if held_elsewhere or record.could_possibly_record():
        return array_ops.identity(tensor)
    graph = ops.get_default_graph()
    if not graph.building_function:
        graph = tensor.graph
    dtype = tensor.dtype.base_dtype
    attrs = {"T": tf.compat.v1.AttrValue(type=dtype.as_datatype_enum)}
    return graph._create_op_internal("Identity", [tensor], [dtype], attrs=attrs).outputs[0]
