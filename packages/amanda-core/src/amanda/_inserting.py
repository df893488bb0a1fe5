"""What an analysis routine inserts is checked here, and taken by the analysis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from amanda._action import (
    POINTS,
    Action,
    Indices,
    Point,
    Said,
    checked_indices,
    checked_options,
    name_of,
)
from amanda._errors import ActionError, UnsupportedError
from amanda._forward import Ask
from amanda._observation import TensorT
from amanda._operator import Execution
from amanda._published import PublishedMethods
from amanda._routine import runs_later
from amanda._subscription import View

Routine: TypeAlias = Callable[..., Any]


class Inserting(PublishedMethods[TensorT]):
    """A context takes what its insertions choose, once it is known to be right."""

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
        where = Said(
            lambda: f"{now.tool.name}: {name_of(routine)} at {point.value} of {self.op.named}"
        )
        if not callable(routine):
            raise ActionError(f"{where}: the routine is not callable")
        if runs_later(routine):
            raise ActionError(
                f"{where}: the routine is a generator or a coroutine, of which a call runs "
                "nothing; insert an ordinary function"
            )
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
