"""What the tools decided about one operator or gradient is made into stages."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from amanda import UnsupportedError
from amanda.driving import Point

from amanda_tensorflow.graph.rows import Rows, with_rows
from amanda_tensorflow.routines.pure import PureRoutine
from amanda_tensorflow.routines.stages import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amanda.driving import Action, Plan

    from amanda_tensorflow.composites import Anchor
    from amanda_tensorflow.decisions.asked import ForwardSide, LayerSide
    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.operators import TensorFlowOperator

_NO_ROWS: Mapping[int, Rows] = {}


class Inserting:
    """This makes the stages at one operator or gradient.

    Args:
        stages: where they are added.
        frame: number of the frame.
        anchor: see :class:`Stage`.
        operator: whose routines they are.
        in_loop: whether it is in a loop of version 1.
        fixed: positions of the inputs that host routines cannot replace.
        forward: the forward side, of which they may ask for tensors; None for backward operators.
    """

    def __init__(
        self,
        stages: list[Stage],
        frame: int,
        anchor: Anchor,
        operator: TensorFlowOperator,
        in_loop: bool,
        fixed: Sequence[int],
        forward: ForwardSide | LayerSide | None,
    ) -> None:
        self._stages = stages
        self._frame = frame
        self._anchor = anchor
        self._operator = operator
        self._in_loop = in_loop
        self._fixed = fixed
        self._forward = forward

    def around(self, plan: Plan, tensors: Sequence[Any], results: Sequence[Any]) -> None:
        """Make stages of all that a plan says of an operator or backward operator.

        Args:
            plan: the plan.
            tensors: what it takes; of a backward operator, the gradients.
            results: what it makes.
        """
        self.chain(plan.before, tensors, self._fixed)
        if plan.replace is not None:
            self._add([plan.replace], tensors, results)
        self.chain(plan.after, results)

    def gradients(
        self,
        actions: Sequence[Action],
        frame: Frame,
        names: Sequence[str | None],
        of: Sequence[Any],
    ) -> None:
        """Make stages of routines on gradients, some of which may come as some rows only.

        Args:
            actions: the routines, all at one point.
            frame: where the gradients are computed.
            names: the names of the gradients.
            of: what they are gradients of.

        Raises:
            UnsupportedError: a routine is to be given the whole of a gradient whose size nobody
                has told.
        """
        names, places = with_rows(frame.graph, names)
        tensors = [frame.computed(name) for name in names]
        rows = {
            position: Rows(indices, shape, _first_size(of[position]))
            for position, (indices, shape) in places.items()
        }
        for action in actions if rows else ():
            for position, (_, shape, number) in rows.items():
                chosen = action.indices is None or position in action.indices
                if action.whole and chosen and number is None and tensors[shape] is None:
                    raise no_whole(action, self._operator, "nobody tells the shape of the whole")
        self.chain(actions, tensors, rows=rows)

    def chain(
        self,
        actions: Sequence[Action],
        tensors: Sequence[Any],
        fixed: Sequence[int] = (),
        rows: Mapping[int, Rows] = _NO_ROWS,
    ) -> None:
        """Make stages of routines that run one after the other; neighbours of a kind share a stage.

        Args:
            actions: the routines, all at one point.
            tensors: what they may select from.
            fixed: positions of those that host routines cannot replace.
            rows: those that are gradients of which there are some rows.
        """
        for _, neighbours in itertools.groupby(actions, lambda action: action.pure):
            self._add(list(neighbours), tensors, None, fixed, rows)

    def _add(
        self,
        actions: Sequence[Action],
        tensors: Sequence[Any],
        results: Sequence[Any] | None,
        fixed: Sequence[int] = (),
        rows: Mapping[int, Rows] = _NO_ROWS,
    ) -> None:
        asks = [
            *dict.fromkeys(
                ask
                for action in actions
                for ask in action.asked
                if action.point is not Point.BEFORE_OP or ask.what != "inputs"
            )
        ]
        rerun = None
        if actions[0].original:
            assert self._forward is not None
            rerun = self._forward.rerun(actions[0], self._operator.named)
        stage = Stage(
            *(self._frame, self._anchor, actions, tensors, results, self._operator, rows),
            {} if self._forward is None else self._forward.asked(asks),
            rerun,
        )
        if not actions[0].pure:
            stage.fix(fixed)
        else:
            stage.pure = PureRoutine.trace(stage)
            if results is None and not stage.pure.changed:
                return  # it changes nothing, and sees no values
            if self._in_loop and stage.pure.captures:
                stage.pure = None  # what it captured cannot be passed into the loop
        self._stages.append(stage)


def no_whole(action: Action, operator: TensorFlowOperator, why: str) -> UnsupportedError:
    """Make the error for a routine that wants the whole of a gradient, which it cannot be given."""
    return UnsupportedError(
        f"{action.tool.name}: of the gradient of {operator.named} there are some rows "
        f"(tf.IndexedSlices), and {why}; have a tool of TensorFlow's vocabulary look at the rows"
    )


def _first_size(tensor: Any) -> int | None:
    """Return the size of the first axis, None if that is known only when the graph runs."""
    shape = tensor.shape
    return shape[0] if shape.rank else None
