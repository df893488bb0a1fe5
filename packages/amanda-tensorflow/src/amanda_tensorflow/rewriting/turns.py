"""An operator in a loop may take other versions of a tensor that no iteration of it changes.

The backward loop takes such a tensor from outside, as the forward loop does, and not from a list
that the forward loop fills. Where a tool substitutes it for an operator, each iteration may have
another substitute: the forward loop fills a list of them, and the backward loop empties it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amanda_tensorflow.graph.body import Body
    from amanda_tensorflow.graph.frames import Frame

_VARIANT = tf.variant.as_datatype_enum


def unchanged(frame: Frame) -> Iterator[tuple[Frame, str, str]]:
    """List tensors that loops do not change: the loop's body, and the names in it and outside."""
    for call, children in frame.children.items():
        body = children[-1]
        if body.attr == "body":
            pairs = zip(body.body.arguments, frame.inputs[call], strict=False)
            for index, ((argument, _), tensor) in enumerate(pairs):
                if body.keeps(index):
                    yield body, f"{argument}:0", tensor


def holds_list(optional: Any) -> None:
    """Have a node that makes an optional, or takes it apart, do so with a list."""
    for types in {"Toutput_types", "output_types"} & optional.attr.keys():
        del optional.attr[types].list.type[:]
        optional.attr[types].list.type.append(_VARIANT)
    if "output_shapes" in optional.attr:
        del optional.attr["output_shapes"].list.shape[:]
        optional.attr["output_shapes"].list.shape.add(unknown_rank=True)


def listed(body: Frame, argument: str | None, version: str, name: str) -> str:
    """Make a list of the versions that a tensor has in the iterations of a loop.

    Args:
        body: the loop's body.
        argument: what the tensor stands for there; None for a list, which has the shape of none.
        version: the tensor.
        name: of the nodes that are added.
    """
    assert body.parent is not None
    outside = body.parent.body
    dtype = body.body.dtype(version)
    shape = _shape(outside, body, argument, f"{name}/shape")
    count = _most_turns(body) or _constant(outside, f"{name}/count", -1)
    empty = outside.add(f"{name}/empty", "EmptyTensorList", [shape, count])
    empty.attr["element_dtype"].type = dtype
    empty.attr["shape_type"].type = tf.int32.as_datatype_enum

    def push(present: str) -> str:
        node = body.body.add(f"{name}/push", "TensorListPushBack", [present, version])
        node.attr["element_dtype"].type = dtype
        return f"{node.name}:0"

    return body.add_loop_variable(f"{empty.name}:0", push)[1]


def taken(body: Frame, argument: str | None, turns: str, name: str) -> str:
    """Have a backward loop take one element in each iteration of a list of versions.

    Args:
        body: the loop's body.
        argument: what the original is there; None to take a list from a list of lists.
        turns: the list, a tensor of the parent.
        name: of the nodes that are added.
    """
    shape = _shape(body.body, body, argument, f"{name}/shape")

    def pop(present: str) -> str:
        node = body.body.add(f"{name}/pop", "TensorListPopBack", [present, shape])
        node.attr["element_dtype"].type = (
            _VARIANT if argument is None else body.body.dtype(argument)
        )
        return f"{node.name}:0"

    body.add_loop_variable(turns, pop)
    return f"{name}/pop:1"


def _most_turns(body: Frame) -> str | None:
    """Return how many turns a loop takes at most, as a tensor of the parent; None if untold.

    XLA wants to know it of a list. A loop of version 2 takes it as its second variable.
    """
    arguments = body.body.arguments
    is_told = len(arguments) > 1 and "maximum_iterations" in arguments[1][0]
    return body.caller_tensor(1) if is_told else None


def _shape(where: Body, body: Frame, argument: str | None, name: str) -> str:
    """Add the shape of an argument, or of a list for None, with -1 for what is not known."""
    if argument is None:
        return _constant(where, name, np.zeros(0, np.int32))
    index = body.body.argument(argument)
    known = body.graph.inputs[index].shape
    sizes = -1 if known.rank is None else [-1 if size is None else size for size in known]
    return _constant(where, name, sizes)


def _constant(where: Body, name: str, value: Any) -> str:
    node = where.add(name, "Const", [])
    node.attr["dtype"].type = tf.int32.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int32))
    return f"{name}:0"
