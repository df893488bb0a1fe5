"""A watch sees the gradient of one execution, as a whole or by its backward operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_torch._internals import sequence_number
from amanda_torch.backward.asked import copied
from amanda_torch.backward.edges import alias, come_twice, edges
from amanda_torch.backward.nodes import watch_backward
from amanda_torch.tensors.straight import in_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda import Operator
    from amanda.driving import Engine, Execution, Plan
    from torch import Tensor
    from torch.autograd.graph import GradientEdge, Node

    from amanda_torch.backward.asked import Kept
    from amanda_torch.backward.gradient import Gradient
    from amanda_torch.places.numbering import Numbering

    Shown = Callable[[Sequence[Tensor]], Execution]


class Unwatched:
    """This sees nothing of an execution: nobody wants its gradient, or it has none.

    Attributes:
        bounded: the outputs, where they lie behind a boundary; else none.
        kept: keeps what routines on the gradient ask for; None where there are none.
    """

    bounded: Sequence[Tensor] = ()
    kept: Kept | None = None

    def complete(self, plan: Plan) -> None:
        """Take note of what analyses have decided that waited for the outputs."""

    def gave(self, outputs: Sequence[Tensor]) -> None:
        """Take note of the outputs that the operator itself has given."""

    def enter(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return what to run the operator on."""
        return inputs

    def passes(self, outputs: Sequence[Tensor]) -> bool:
        """Tell whether the operator gave what it was given, around which no boundary may lie."""
        return False

    def without_boundary(self) -> Sequence[Tensor]:
        """Return what to run the operator on once more, without a boundary ahead of it."""
        raise AssertionError("there is no boundary")

    def leave(self, outputs: Sequence[Tensor], shown: Shown) -> Sequence[Tensor]:
        """Return what the operator gave, as it is passed on."""
        return outputs

    def done(self, shown: Shown) -> None:
        """Take note that the routines after the operator have run."""


UNWATCHED = Unwatched()


class Watch(Unwatched):
    """A watch sees the gradient of an execution that has one.

    Args:
        engine: the active tools.
        numbering: has the backward operators.
        operator: the operator.
        gradient: watches the gradient as a whole, if a tool wants that.
        bounded: whether it may do so by boundaries.
        writes: whether the operator writes to tensors of the program.
        backward: whether a tool wants the backward operators.
    """

    _has_given = False
    _inputs: Sequence[Tensor] = ()
    _given: Sequence[Tensor] = ()
    # Where gradients are to leave, taken ahead: the operator may write to its inputs.
    _ahead: Sequence[GradientEdge | None] = ()
    _number = 0
    _returned: Sequence[Tensor] = ()
    _ends: Sequence[Node | None] = ()

    def __init__(
        self,
        engine: Engine,
        numbering: Numbering,
        operator: Operator,
        gradient: Gradient | None,
        bounded: bool,
        writes: bool,
        backward: bool,
    ) -> None:
        self._engine = engine
        self._numbering = numbering
        self._operator = operator
        self._gradient = gradient
        self._boundary = gradient if bounded else None
        self._writes = writes
        self._backward = backward
        self.kept = None if gradient is None else gradient.kept

    def gave(self, outputs: Sequence[Tensor]) -> None:
        """Take note of the outputs that the operator itself has given."""
        self._has_given = True
        if self.kept is not None and self.kept.wants("outputs"):
            # routines may return something else, to be written to what the operator wrote to
            self.kept.keep(outputs=copied(outputs, range(len(outputs) if self._writes else 0)))

    def enter(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return what to run the operator on."""
        self._inputs = inputs
        given = inputs
        if self._boundary is not None:
            given = self._boundary.enter(inputs, self._writes or come_twice(inputs))
        self._number = sequence_number()
        return self._from(given)

    def passes(self, outputs: Sequence[Tensor]) -> bool:
        """Tell whether the operator gave what it was given, as dropout does in evaluation.

        One that writes to it, and gives it for that reason, does not pass it on.
        """
        if self._writes or self._boundary is None or not alias(outputs, self._given):
            return False
        if self._boundary.is_bounded:
            return True
        self._boundary, self._ahead = None, edges(self._given)  # nothing lies ahead
        return False

    def without_boundary(self) -> Sequence[Tensor]:
        """Return what to run the operator on once more, without a boundary ahead of it."""
        self._boundary = None
        return self._from(self._inputs)

    def leave(self, outputs: Sequence[Tensor], shown: Shown) -> Sequence[Tensor]:
        """Return what the operator gave, as it is passed on."""
        if not self._has_given:  # a replacement that is differentiated in its place
            self.gave(outputs)
        if self._backward:
            self._returned = outputs
            self._ends = [in_graph(t).grad_fn for t in outputs]
        if self._boundary is not None:
            outputs = self._boundary.leave(self._number, self._ahead, self._given, outputs, shown)
            self.bounded = outputs
        elif self._gradient is not None:
            self._gradient.hook(self._number, self._ahead, self._given, outputs, shown)
        return outputs

    def done(self, shown: Shown) -> None:
        """Watch the backward operators: what that takes is not to show in a tool's measurement."""
        if self._ends:
            watch_backward(
                self._engine,
                self._numbering,
                self._operator,
                self._returned,
                self._ends,
                self._number,
                shown,
            )

    def _from(self, given: Sequence[Tensor]) -> Sequence[Tensor]:
        self._given = given
        gradient, bounded = self._gradient, self._boundary is not None
        looks = gradient is not None and (gradient.is_bounded or not bounded)
        self._ahead = edges(given) if looks else []
        return given
