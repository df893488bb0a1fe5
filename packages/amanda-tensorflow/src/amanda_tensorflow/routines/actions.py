"""This runs one routine of a tool, host or pure, in TensorFlow's terms."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from amanda import RoutineError

from amanda_tensorflow._internals import context, ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda.driving import Action, Forward

    from amanda_tensorflow.graph.operators import TensorFlowOperator

# How TensorFlow refuses a tensor of a graph in another graph, and where there is none.
_OUT_OF_SCOPE = "is out of scope and cannot be used here"


class _Portable(threading.local):
    """This tells whether this thread runs a routine of a tool that speaks a portable vocabulary."""

    running = False


_portable = _Portable()


def call_action(
    action: Action, given: Sequence[Any], operator: TensorFlowOperator, forward: Forward
) -> Any:
    """Run the routine of an action, and return its result. See :meth:`amanda.driving.Action.call`.

    Raises:
        RoutineError: it failed, or uses a tensor of the graph that it was not given.
    """
    before, _portable.running = _portable.running, action.whole or _portable.running
    try:
        result = action.call(given, operator, forward)
    except RoutineError as error:
        if _OUT_OF_SCOPE in str(error.__cause__):
            tensor = str(error.__cause__).partition(" is out of scope")[0]
            raise action.error(_captured(tensor), operator) from error.__cause__
        raise
    finally:
        _portable.running = before
    if action.pure and not context.executing_eagerly():  # it is being traced
        for outer, _ in getattr(ops.get_default_graph(), "captures", ()):
            if not isinstance(outer, tf.__internal__.EagerTensor):
                raise action.error(_captured(str(outer)), operator)
    return result


def _captured(tensor: str) -> str:
    return (
        f"it uses {tensor} of the graph, which has no value in a routine; pass an array, keep the "
        "value in ctx.variable(name, initial), or have the routine given the tensor as an input"
    )


def having_integer_shapes(v2_behavior: Any) -> property:
    """Wrap ``TensorShape._v2_behavior``, which tells whether the sizes are integers.

    They are for the routines of portable tools, also with v2 behavior off.
    """
    return property(lambda shape: _portable.running or v2_behavior.fget(shape))
