"""Tools are asked about all operators behind one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda_tensorflow.decisions.inserting import Inserting
from amanda_tensorflow.thread import Shown, looking_at

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Sequence

    from amanda.driving import Engine, Execution, Plan

    from amanda_tensorflow.composites import Anchor
    from amanda_tensorflow.decisions.asked import ForwardSide, LayerSide
    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.operators import TensorFlowOperator
    from amanda_tensorflow.routines.stages import Stage
    from amanda_tensorflow.values import Values


class Asking:
    """This asks tools about the frames behind one call, and holds what they have decided so far.

    Attributes:
        frames: the outermost frame and all below it, whose operators are identified.
        engine: the active tools.
        stages: what they want inserted.
    """

    def __init__(self, root: Frame, engine: Engine, values: Values) -> None:
        self.frames = list(root.walk())
        self.engine = engine
        self.stages: list[Stage] = []
        self._values = values
        self._numbers = {frame: number for number, frame in enumerate(self.frames)}
        self._first_of = {frame.graph: frame for frame in reversed(self.frames)}

    def number(self, frame: Frame) -> int:
        """Return the number of a frame among those behind the call."""
        return self._numbers[frame]

    def looking_at(self, frame: Frame) -> contextlib.AbstractContextManager[None]:
        """Open a block in which tools look at an operator of a frame."""
        return looking_at(Shown(self._values, frame))

    def looking_back_at(self, graph: Any) -> contextlib.AbstractContextManager[None]:
        """Open a block in which tools look at the gradient of an operator of a graph."""
        return looking_at(Shown(self._values, self._first_of.get(graph, graph)))

    def plan(
        self,
        frame: Frame,
        operator: TensorFlowOperator,
        show: Callable[[], Execution],
        outputs: Sequence[Any],
        output_names: Sequence[str] = (),
    ) -> Plan:
        """Return what the tools decide about an operator of a frame.

        Args:
            frame: where it is.
            operator: the operator, or a layer.
            show: makes what they are shown of it.
            outputs: its results.
            output_names: the names of these.
        """
        plan = self.engine.plan(operator)
        if plan is None or plan.pending:
            shown = show()
            with self.looking_at(frame):
                if plan is None:
                    plan = self.engine.analyze(shown)
                if plan.pending:
                    shown.outputs, shown.output_names = outputs, output_names
                    plan = self.engine.complete(plan, shown)
        return plan

    def inserting(
        self,
        frame: Frame,
        anchor: Anchor,
        operator: TensorFlowOperator,
        node: str | None,
        fixed: Sequence[int] = (),
        forward: ForwardSide | LayerSide | None = None,
        into: list[Stage] | None = None,
    ) -> Inserting:
        """Return what makes the stages at an operator or gradient.

        Args:
            frame: where it is.
            anchor: what it is inserted at there, see :class:`Stage`.
            operator: whose routines they are.
            node: a node that runs where they do; None for none in a loop of version 1.
            fixed: positions of the inputs that host routines cannot replace.
            forward: its forward side; None for a backward operator.
            into: where the stages go that are not to be inserted, only looked at.
        """
        number = self.number(frame)
        in_loop = node is not None and frame.in_loop(node)
        stages = self.stages if into is None else into
        return Inserting(stages, number, anchor, operator, in_loop, fixed, forward)
