"""Some nodes hold state of their own, which a copy of the node would not have.

A session keeps the state of a queue, table, iterator or random stream with its node. A copy would
begin with an empty queue or at the start of the stream, unless there is a name under which it finds
the state of the original.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from amanda_tensorflow._internals import op_def_registry, types_pb2

_log = logging.getLogger("amanda_tensorflow")

# These families make what lives as long as one run, or has a name of its own in each run: a copy
# has no state to lose.
_FOR_ONE_RUN = ("Anonymous", "Stack", "TemporaryVariable", "TensorArray")
_SEEDS = frozenset(["file_random_seed", "seed"])
# Their kernels remember where they are in what they read.
_POSITIONS = frozenset(["FakeQueue", "RecordInput", "Skipgram"])
_HANDLES = frozenset([types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT])


@functools.cache
def keeps_state(op: str) -> bool:
    """Tell whether each node of an operator has state of its own: a handle, or a random stream."""
    op_def = op_def_registry.get(op)
    if op_def is None or not op_def.is_stateful or op.startswith(_FOR_ONE_RUN):
        return False
    if any(arg.is_ref or arg.type in _HANDLES for arg in op_def.input_arg):
        return False
    makes_handle = any(arg.is_ref or arg.type == types_pb2.DT_RESOURCE for arg in op_def.output_arg)
    return makes_handle or draws_random_numbers(op) or op in _POSITIONS


@functools.cache
def draws_random_numbers(op: str) -> bool:
    """Tell whether each node of an operator has a random stream of its own."""
    op_def = op_def_registry.get(op)
    return (
        op_def is not None
        and op_def.is_stateful
        and any(attr.name in _SEEDS for attr in op_def.attr)
        and not any(arg.type in _HANDLES for arg in op_def.input_arg)
    )


def is_reproducible(node: Any) -> bool:
    """Tell whether a node draws random numbers that are the same in every process."""
    seeds = ("seed", "seed2")
    return draws_random_numbers(node.op) and any(
        name in node.attr and node.attr[name].i for name in seeds
    )


def share_by_name(node: Any, name: str) -> None:
    """Have a copy of a node use the state that is kept under the original's name.

    Args:
        node: NodeDef of the copy.
        name: name of the original.
    """
    by_itself = keeps_state(node.op) and not is_kept_by_node_name(node)
    if _takes_a_name(node.op) and not has_name_of_its_own(node) and not by_itself:
        node.attr["shared_name"].s = name.encode()


def has_name_of_its_own(node: Any) -> bool:
    """Tell whether a node keeps its state under a name that it gives, and that copies have too."""
    return _takes_a_name(node.op) and bool(node.attr["shared_name"].s)


def is_kept_by_node_name(node: Any) -> bool:
    """Tell whether a node's state is kept under the name of the node, not by itself alone."""
    return "use_node_name_sharing" in node.attr and bool(node.attr["use_node_name_sharing"].b)


@functools.cache
def _takes_a_name(op: str) -> bool:
    op_def = op_def_registry.get(op)
    return (
        op_def is not None
        and op_def.is_stateful
        and any(attr.name == "shared_name" for attr in op_def.attr)
    )


def note_new_streams(where: str, operators: list[str]) -> None:
    """Say which random operators begin their streams anew."""
    if operators:
        _log.warning(
            "random streams begin anew in %s while tools insert routines there: %s; draw from a "
            "tf.random.Generator or by tf.random.stateless_* functions, or choose the operators by "
            "ops= so that this one needs no routine",
            where,
            ", ".join(sorted(operators)),
        )
