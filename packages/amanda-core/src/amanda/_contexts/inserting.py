"""What an analysis routine inserts is checked here, and taken by the analysis."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from amanda._contexts.action import Action
from amanda._contexts.analysis import Analysis
from amanda._contexts.forward import Ask
from amanda._contexts.indices import Indices, checked_indices
from amanda._errors import ActionError, UnsupportedError
from amanda._operators.operator import Execution
from amanda._operators.points import POINTS, Point, View
from amanda._threads.routine import name_of, runs_later

Routine: TypeAlias = Callable[..., Any]


def insert(
    analysis: Analysis,
    point: Point,
    routine: Routine,
    indices: Indices,
    kwargs: Mapping[str, Any],
    pure: bool,
    differentiable: bool = False,
    asked: Mapping[str, Indices] = MappingProxyType({}),
    original: bool = False,
) -> None:
    """Check what an analysis routine inserts, and have the analysis take it.

    What is ``asked`` for of the forward side are indices too, by the kind of what they choose.
    """
    tool, execution = analysis.tool, analysis.execution
    option = _CHOOSES.get(point, "inputs")
    try:
        _check_routine(routine, point, analysis.view)
        chosen = checked_indices(indices, *_choices(execution, option), option)
        _check_options(routine, kwargs, (option, *_OPTIONS))
        asks = tuple(_asks(execution, asked))
    except (ActionError, UnsupportedError) as error:
        where = f"{tool.name}: {name_of(routine)} at {point.value} of {execution.operator.named}"
        raise type(error)(f"{where}: {error}") from None
    analysis.insert(
        Action(point, routine, tool, chosen, kwargs, pure, differentiable, asks, original)
    )


def _check_routine(routine: Routine, point: Point, view: View) -> None:
    """Check that it is a routine, and that an analysis of this view inserts at this point."""
    if not callable(routine):
        raise ActionError("the routine is not callable")
    if runs_later(routine):
        raise ActionError(
            "the routine is a generator or a coroutine, of which a call runs nothing; insert an "
            "ordinary function"
        )
    if point not in POINTS[view]:
        allowed = ", ".join(map(_method, POINTS[view]))
        inserting = next(view for view, points in POINTS.items() if point in points)
        raise UnsupportedError(
            f"an analysis of {view.value} has {allowed}; for {_method(point)} register an analysis "
            f"routine with {_REGISTRATION[inserting]}"
        )


def _method(point: Point) -> str:
    """Return the method of a context that inserts at a point."""
    return point.value if point.replaces else f"insert_{point.value}"


def _check_options(routine: Routine, options: Mapping[str, Any], known: Sequence[str]) -> None:
    """Check that a routine takes the keyword arguments that an insertion passes on to it.

    One whose signature Python cannot tell takes anything. What it does not take may be a
    misspelling of the ``known`` options of the insertion itself.
    """
    if not options:
        return
    import difflib  # which takes long

    try:
        signature = inspect.signature(routine)
    except (TypeError, ValueError):
        return
    for option in options:
        try:
            signature.bind_partial(**{option: None})
        except TypeError:
            if option in known:
                raise ActionError(
                    f"there is no {option!r} at this point, and the routine takes none"
                ) from None
            near = difflib.get_close_matches(option, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ActionError(f"the routine takes no {option!r}{hint}") from None


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
    View.FORWARD: "add_inst_for_op, without backward=True",
    View.BACKWARD: "add_inst_for_op(backward=True)",
    View.GRADIENT: "add_inst_for_gradient",
    View.MODULE: "add_inst_for_module",
}


def _asks(execution: Execution, asked: Mapping[str, Indices]) -> Iterator[Ask]:
    """Give what is asked for of the forward side."""
    for kind, wanted in asked.items():
        count, names = _choices(execution, kind)
        chosen = checked_indices(wanted, count, names, f"with_{kind}")
        if chosen is None and count is None:
            raise ActionError(
                f"with_{kind} has to list indices, since there are no outputs before it runs; or "
                "register the analysis routine with require_outputs=True"
            )
        for index in range(count or 0) if chosen is None else chosen:
            yield Ask(kind, index)  # type: ignore[arg-type]


def _choices(execution: Execution, kind: str) -> tuple[int | None, Sequence[str]]:
    """Return how many tensors of a kind there are, None while that is unknown, and their names."""
    grads = execution.grad_inputs  # that a function tells are those of a gradient as a whole
    tensors, names = {
        "outputs": (execution.grad_outputs or execution.outputs, execution.output_names),
        "grad_outputs": (execution.grad_outputs, ()),
        "grad_inputs": (execution.inputs if callable(grads) else grads, ()),
    }.get(kind, (execution.inputs, execution.input_names))
    return None if tensors is None else len(tensors), names
