"""The context: what an analysis routine sees of an operator, and where it says what to insert."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from amanda._action import POINTS, Action, Point, checked_indices, checked_options, name_of
from amanda._errors import ActionError, UnsupportedError
from amanda._operator import Execution
from amanda._published import PublishedMethods
from amanda._tool import View

# What a routine is, and which tensors it is given: by index or by name, all of them by default.
Routine: TypeAlias = Callable[..., Any]
Indices: TypeAlias = Iterable[int | str] | None


class OpContext(PublishedMethods):
    """An operator as its analysis routines see it.

    It is also a dict, which lives as long as the operator within the outermost scope and is
    shared by all tools and by the forward and backward side: a place for what one routine
    leaves for another. What is one tool's own belongs into :meth:`state`. The tensors can be
    looked at only during an analysis routine, so that nothing keeps them alive.
    """

    __slots__ = ()

    def insert_before_op(
        self,
        routine: Routine,
        inputs: Indices = None,
        *,
        pure: bool = False,
        differentiable: bool = False,
        **kwargs: Any,
    ) -> None:
        """Run ``routine(*inputs, **kwargs)`` before each execution; what it returns replaces them.

        Args:
            routine: returns None, one tensor, or as many as it was given. If it is annotated
                ``-> None`` it is held to that, and the driver may spare what substituting takes.
                It is given the program's own tensors: to change one, return another.
            inputs: which inputs it is given, by index or by name, all of them by default.
            pure: it is a pure tensor function, which a graph backend may compile.
            differentiable: gradients flow through it, rather than straight to what it replaced.
            **kwargs: passed on to the routine.
        """
        self._insert(Point.BEFORE_OP, routine, inputs, "inputs", pure, kwargs, differentiable)

    def insert_after_op(
        self,
        routine: Routine,
        outputs: Indices = None,
        *,
        pure: bool = False,
        differentiable: bool = False,
        **kwargs: Any,
    ) -> None:
        """Run ``routine(*outputs, **kwargs)`` after each execution; see ``insert_before_op``."""
        self._insert(Point.AFTER_OP, routine, outputs, "outputs", pure, kwargs, differentiable)

    def replace_op(
        self,
        routine: Routine,
        inputs: Indices = None,
        *,
        pure: bool = False,
        differentiable: bool = False,
        **kwargs: Any,
    ) -> None:
        """Run ``routine(*inputs, **kwargs)`` instead of the operator; it returns the outputs.

        The gradient stays that of the original operator unless ``differentiable``.
        """
        self._insert(Point.REPLACE_OP, routine, inputs, "inputs", pure, kwargs, differentiable)

    def insert_before_backward_op(
        self, routine: Routine, grad_outputs: Indices = None, *, pure: bool = False, **kwargs: Any
    ) -> None:
        """Run ``routine(*grad_outputs, **kwargs)`` before each run of the backward operator."""
        point = Point.BEFORE_BACKWARD_OP
        self._insert(point, routine, grad_outputs, "grad_outputs", pure, kwargs)

    def insert_after_backward_op(
        self, routine: Routine, grad_inputs: Indices = None, *, pure: bool = False, **kwargs: Any
    ) -> None:
        """Run ``routine(*grad_inputs, **kwargs)`` after each run of the backward operator."""
        point = Point.AFTER_BACKWARD_OP
        self._insert(point, routine, grad_inputs, "grad_inputs", pure, kwargs)

    def replace_backward_op(
        self, routine: Routine, grad_outputs: Indices = None, *, pure: bool = False, **kwargs: Any
    ) -> None:
        """Have ``routine(*grad_outputs, **kwargs)`` give what the backward operator returns."""
        point = Point.REPLACE_BACKWARD_OP
        self._insert(point, routine, grad_outputs, "grad_outputs", pure, kwargs)

    def insert_on_grad_outputs(
        self, routine: Routine, outputs: Indices = None, *, pure: bool = False, **kwargs: Any
    ) -> None:
        """Run ``routine(*grads, **kwargs)`` on the gradients of the operator's outputs."""
        self._insert(Point.ON_GRAD_OUTPUTS, routine, outputs, "outputs", pure, kwargs)

    def insert_on_grad_inputs(
        self, routine: Routine, inputs: Indices = None, *, pure: bool = False, **kwargs: Any
    ) -> None:
        """Run ``routine(*grads, **kwargs)`` on the operator's gradients of its inputs."""
        self._insert(Point.ON_GRAD_INPUTS, routine, inputs, "inputs", pure, kwargs)

    def _insert(
        self,
        point: Point,
        routine: Routine,
        indices: Indices,
        what: str,
        pure: bool,
        kwargs: Mapping[str, Any],
        differentiable: bool = False,
    ) -> None:
        """Check what is to be inserted, and have the analysis take it.

        ``what`` is the name of the parameter that has the indices.
        """
        now = self._now
        where = f"{now.tool.name}: {name_of(routine)} at {point.value} of {self.op_id!r}"
        if not callable(routine):
            raise ActionError(f"{where}: the routine is not callable")
        if point not in POINTS[now.view]:
            allowed = ", ".join(p.value for p in POINTS[now.view])
            inserting = next(view for view, points in POINTS.items() if point in points)
            raise UnsupportedError(
                f"{where}: an analysis of {now.view.value} inserts at {allowed}; register the "
                f"analysis routine with {_REGISTRATION[inserting]}"
            )
        count = _count(now.execution, point)
        names = now.execution.input_names if what == "inputs" else ()
        chosen = checked_indices(indices, count, names, what=what, where=where)
        if kwargs:
            checked_options(routine, kwargs, (what, "pure", "differentiable"), where)
        action = Action(point, routine, now.tool, chosen, kwargs, pure, differentiable)
        now.insert(action)


_REGISTRATION = {
    View.FORWARD: "add_inst_for_op",
    View.BACKWARD: "add_inst_for_op(backward=True)",
    View.GRADIENT: "add_inst_for_gradient",
}


def _count(execution: Execution, point: Point) -> int | None:
    """How many tensors a routine at ``point`` may select from, None while it is not known."""
    grads = execution.grad_inputs  # that a function tells are those of a gradient as a whole
    tensors = {
        Point.BEFORE_OP: execution.inputs,
        Point.REPLACE_OP: execution.inputs,
        Point.AFTER_OP: execution.outputs,
        Point.AFTER_BACKWARD_OP: execution.inputs if callable(grads) else grads,
        Point.ON_GRAD_INPUTS: execution.inputs,
    }.get(point, execution.grad_outputs)
    return None if tensors is None else len(tensors)
