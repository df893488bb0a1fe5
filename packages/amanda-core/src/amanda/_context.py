"""The context of an operator is where an analysis routine says what to insert."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from amanda._action import POINTS, Action, Indices, Point, checked_indices, checked_options, name_of
from amanda._errors import ActionError, UnsupportedError
from amanda._forward import Ask
from amanda._operator import Execution
from amanda._published import PublishedMethods
from amanda._tool import View

Routine: TypeAlias = Callable[..., Any]


class OpContext(PublishedMethods):
    """The context shows an operator to its analysis routines, and takes what they insert.

    It is also a dict, which lives as long as the operator within the outermost scope and is
    shared by all tools and by the forward and backward side: a place for what one routine
    leaves for another. What is one tool's own belongs into :meth:`state`. The tensors can be
    looked at only during an analysis routine, so that nothing keeps them alive.

    Every insertion takes a routine, and the indices or names of the tensors that it is given, all
    of them by default. It returns None, one tensor, or as many as it was given; one annotated
    ``-> None`` is held to that, and the driver may spare what substituting takes. It is given the
    program's own tensors: to change one, it returns another. Keyword arguments are passed on to
    it, but for these options:

    - ``pure``: it is a pure tensor function, which a graph backend may compile.
    - ``differentiable``: gradients flow through it, and to what it asks for, rather than straight
      to what it replaced.
    - ``with_inputs``: inputs that it is given after the others, and does not replace, as the
      operator was given them: with what routines before it have returned, and ahead of what it
      writes to them. Before the operator they are as the routine before left them.
    - ``with_given``: the same, as the program gives them, ahead of any routine.
    - ``with_outputs``: outputs as the operator itself gave them, ahead of any routine. What is
      asked for of the forward side in a backward pass is held as long as the graph.
    """

    def insert_before_op(
        self,
        routine: Routine,
        inputs: Indices = None,
        *,
        with_inputs: Indices = (),
        with_given: Indices = (),
        pure: bool = False,
        differentiable: bool = False,
        **kwargs: Any,
    ) -> None:
        """Run ``routine(*inputs, *asked, **kwargs)`` before each execution, to replace inputs."""
        asked = {"inputs": with_inputs, "given": with_given}
        self._insert(Point.BEFORE_OP, routine, inputs, kwargs, pure, differentiable, asked)

    def insert_after_op(
        self,
        routine: Routine,
        outputs: Indices = None,
        *,
        with_inputs: Indices = (),
        with_given: Indices = (),
        pure: bool = False,
        differentiable: bool = False,
        **kwargs: Any,
    ) -> None:
        """Run ``routine(*outputs, *asked, **kwargs)`` after each execution, to replace outputs."""
        asked = {"inputs": with_inputs, "given": with_given}
        self._insert(Point.AFTER_OP, routine, outputs, kwargs, pure, differentiable, asked)

    def replace_op(
        self,
        routine: Routine,
        inputs: Indices = None,
        *,
        original: bool = False,
        pure: bool = False,
        differentiable: bool = False,
        **kwargs: Any,
    ) -> None:
        """Run ``routine(*inputs, **kwargs)`` instead of the operator; it returns the outputs.

        The gradient stays that of the original operator unless ``differentiable``.

        With ``original=True`` it is called as ``routine(original, *inputs, **kwargs)``, and
        ``original`` runs the operator itself on as many tensors as the routine is given. It returns
        the output, or a tuple of several. A routine that is differentiated is so through it.
        """
        point = Point.REPLACE_OP
        self._insert(point, routine, inputs, kwargs, pure, differentiable, original=original)

    def insert_before_backward_op(
        self, routine: Routine, grad_outputs: Indices = None, *, pure: bool = False, **kwargs: Any
    ) -> None:
        """Run ``routine(*grad_outputs, **kwargs)`` before each run of the backward operator."""
        self._insert(Point.BEFORE_BACKWARD_OP, routine, grad_outputs, kwargs, pure)

    def insert_after_backward_op(
        self, routine: Routine, grad_inputs: Indices = None, *, pure: bool = False, **kwargs: Any
    ) -> None:
        """Run ``routine(*grad_inputs, **kwargs)`` after each run of the backward operator."""
        self._insert(Point.AFTER_BACKWARD_OP, routine, grad_inputs, kwargs, pure)

    def replace_backward_op(
        self, routine: Routine, grad_outputs: Indices = None, *, pure: bool = False, **kwargs: Any
    ) -> None:
        """Have ``routine(*grad_outputs, **kwargs)`` give what the backward operator returns."""
        self._insert(Point.REPLACE_BACKWARD_OP, routine, grad_outputs, kwargs, pure)

    def insert_on_grad_outputs(
        self,
        routine: Routine,
        outputs: Indices = None,
        *,
        with_inputs: Indices = (),
        with_given: Indices = (),
        with_outputs: Indices = (),
        pure: bool = False,
        **kwargs: Any,
    ) -> None:
        """Run ``routine(*grads, *asked, **kwargs)`` on the gradients of the operator's outputs."""
        asked = {"inputs": with_inputs, "given": with_given, "outputs": with_outputs}
        self._insert(Point.ON_GRAD_OUTPUTS, routine, outputs, kwargs, pure, asked=asked)

    def insert_on_grad_inputs(
        self,
        routine: Routine,
        inputs: Indices = None,
        *,
        with_inputs: Indices = (),
        with_given: Indices = (),
        with_outputs: Indices = (),
        pure: bool = False,
        **kwargs: Any,
    ) -> None:
        """Run ``routine(*grads, *asked, **kwargs)`` on the operator's gradients of its inputs."""
        asked = {"inputs": with_inputs, "given": with_given, "outputs": with_outputs}
        self._insert(Point.ON_GRAD_INPUTS, routine, inputs, kwargs, pure, asked=asked)

    def _insert(
        self,
        point: Point,
        routine: Routine,
        indices: Indices,
        kwargs: Mapping[str, Any],
        pure: bool,
        differentiable: bool = False,
        asked: Mapping[str, Indices] = MappingProxyType({}),
        original: bool = False,
    ) -> None:
        """Check what is to be inserted, and have the analysis take it.

        What is ``asked`` for of the forward side are indices too, by the kind of what they choose.
        """
        now, option = self._now, _CHOOSES.get(point, "inputs")
        where = f"{now.tool.name}: {name_of(routine)} at {point.value} of {self.op.named}"
        if not callable(routine):
            raise ActionError(f"{where}: the routine is not callable")
        if point not in POINTS[now.view]:
            allowed = ", ".join(p.value for p in POINTS[now.view])
            inserting = next(view for view, points in POINTS.items() if point in points)
            raise UnsupportedError(
                f"{where}: an analysis of {now.view.value} inserts at {allowed}; register the "
                f"analysis routine with {_REGISTRATION[inserting]}"
            )
        count, names = _choices(now.execution, option)
        chosen = checked_indices(indices, count, names, option, where)
        if kwargs:
            checked_options(routine, kwargs, (option, *_OPTIONS), where)
        asks: list[Ask] = []
        for kind, wanted in asked.items():
            count, names = _choices(now.execution, kind)
            every = checked_indices(wanted, count, names, f"with_{kind}", where)
            if every is None and count is None:
                raise ActionError(f"{where}: with_{kind} has to list indices, {_NOT_YET}")
            every = tuple(range(count or 0)) if every is None else every
            asks += (Ask(kind, index) for index in every)  # type: ignore[arg-type]
        action = Action(
            point, routine, now.tool, chosen, kwargs, pure, differentiable, tuple(asks), original
        )
        now.insert(action)


# What the indices of an insertion choose from, as its parameter is called; of the others: inputs.
_CHOOSES = {
    Point.AFTER_OP: "outputs",
    Point.ON_GRAD_OUTPUTS: "outputs",
    Point.BEFORE_BACKWARD_OP: "grad_outputs",
    Point.REPLACE_BACKWARD_OP: "grad_outputs",
    Point.AFTER_BACKWARD_OP: "grad_inputs",
}
_OPTIONS = ("pure", "differentiable", "original", "with_inputs", "with_given", "with_outputs")

_REGISTRATION = {
    View.FORWARD: "add_inst_for_op",
    View.BACKWARD: "add_inst_for_op(backward=True)",
    View.GRADIENT: "add_inst_for_gradient",
    View.MODULE: "add_inst_for_module",
}
_NOT_YET = (
    "since there are no outputs before it runs; or register the analysis routine with "
    "require_outputs=True"
)


def _choices(execution: Execution, kind: str) -> tuple[int | None, Sequence[str]]:
    """Return how many tensors of a kind there are, None while that is unknown, and their names."""
    grads = execution.grad_inputs  # that a function tells are those of a gradient as a whole
    tensors, names = {
        "outputs": (execution.grad_outputs or execution.outputs, execution.output_names),
        "grad_outputs": (execution.grad_outputs, ()),
        "grad_inputs": (execution.inputs if callable(grads) else grads, ()),
    }.get(kind, (execution.inputs, execution.input_names))
    return None if tensors is None else len(tensors), names
