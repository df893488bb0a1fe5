"""The tools are asked here about the operators behind one call, and decide.

The engine is asked about every operator in every frame, and about its gradient. What comes back
is a list of stages: routines that run together at one point of one operator. The list tells all
there is to know for rewriting a graph, and two equal lists give the same graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_tensorflow._internals import attributes
from amanda_tensorflow.decisions.asking import Asking
from amanda_tensorflow.decisions.custom_gradients import keep_to_custom_gradients
from amanda_tensorflow.decisions.forward import ForwardDecisions
from amanda_tensorflow.decisions.forward_gradients import keep_to_forward_gradients
from amanda_tensorflow.decisions.gradients import GradientDecisions
from amanda_tensorflow.decisions.layers import LayerDecisions
from amanda_tensorflow.decisions.loops_of_version_1 import keep_to_loops_of_version_1
from amanda_tensorflow.decisions.vectorized import keep_to_vectorized_loops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda.driving import Engine

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.routines.stages import Stage
    from amanda_tensorflow.values import Values


def decide(root: Frame, engine: Engine, values: Values) -> list[Stage]:
    """Ask the tools about all operators behind one call, and return the stages in a stable order.

    Args:
        root: the outermost frame, whose operators are identified. It takes note of what it has to
            hand to the function that computes its gradient.
        engine: the active tools.
        values: finds out the values of variables and constants.

    Raises:
        RoutineError: a pure routine cannot be traced, or an analysis routine failed.
        ActionError, UnsupportedError: a routine is inserted where it cannot be.
    """
    asking = Asking(root, engine, values)
    layers = LayerDecisions(asking)
    forward, gradients = ForwardDecisions(asking, layers), GradientDecisions(asking, layers)
    for frame in asking.frames:
        forward.of_frame(frame)
    forward.producing.tell()
    for frame in asking.frames:
        gradients.of_frame(frame)
    if root.definition is not None and attributes.BACKWARD_FUNCTION in root.definition.attr:
        root.handed = {at: of.dtype.as_datatype_enum for of, at in gradients.asked_elsewhere()}
    keep_to_custom_gradients(asking.frames, asking.stages)
    keep_to_loops_of_version_1(asking.frames, asking.stages)
    keep_to_vectorized_loops(asking.frames, asking.stages)
    keep_to_forward_gradients(asking.frames, asking.stages)
    if root.function is None:
        _read_variables_in_order(asking.stages)
    return asking.stages


def _read_variables_in_order(stages: Sequence[Stage]) -> None:
    """Have pure routines see what host routines assign in the same run of a session.

    A session has none of the tools' variables, it is given their values when it begins.
    """
    if any(stage.pure is None for stage in stages):
        for stage in stages:
            if stage.pure is not None and stage.pure.reads_variables:
                stage.pure = None
