"""An action is one decision of an analysis routine; here is how its routine is run."""

from __future__ import annotations

import enum
import operator as builtin_operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from amanda._errors import ActionError, RoutineError
from amanda._forward import NOTHING, Ask, Forward, original
from amanda._operator import Operator
from amanda._routine import call
from amanda._subscription import View
from amanda._tool import Tool

# Says why a substitute cannot stand for the tensor that it replaces, None if it can. The tensor is
# None where there is nothing to compare with.
Check: TypeAlias = Callable[[Any, Any], str | None]
# Which tensors a routine is given: by index or by name, all of them by default.
Indices: TypeAlias = Iterable[int | str] | None


class Point(enum.Enum):
    """A point is where a routine runs."""

    BEFORE_OP = "before_op"
    REPLACE_OP = "replace_op"
    AFTER_OP = "after_op"
    BEFORE_BACKWARD_OP = "before_backward_op"
    REPLACE_BACKWARD_OP = "replace_backward_op"
    AFTER_BACKWARD_OP = "after_backward_op"
    ON_GRAD_OUTPUTS = "on_grad_outputs"
    ON_GRAD_INPUTS = "on_grad_inputs"


# Where routines run that an analysis inserts: before, instead (but for a gradient), and after.
_FORWARD = (Point.BEFORE_OP, Point.REPLACE_OP, Point.AFTER_OP)
_BACKWARD = (Point.BEFORE_BACKWARD_OP, Point.REPLACE_BACKWARD_OP, Point.AFTER_BACKWARD_OP)
_GRADIENT = (Point.ON_GRAD_OUTPUTS, Point.ON_GRAD_INPUTS)
POINTS = {
    View.FORWARD: _FORWARD,
    View.BACKWARD: _BACKWARD,
    View.GRADIENT: _GRADIENT,
    View.MODULE: (*_FORWARD, *_GRADIENT),
}


def name_of(routine: Callable[..., Any]) -> str:
    """Return the name of a routine for error messages."""
    return getattr(routine, "__qualname__", None) or repr(routine)


class Said:
    """A text for error messages is put together only where something is wrong.

    Finding the program's line at which an operator is costs more than all that is checked.
    """

    __slots__ = ("_text",)

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text()


def checked_indices(
    indices: Indices, count: int | None, names: Sequence[str], what: str, where: Said | str
) -> tuple[int, ...] | None:
    """Check the index list of an insertion, and return it without negative indices; None for all.

    There are ``count`` tensors to choose from, None while that is not known, by their ``names`` too
    if they have any. Messages say ``what`` the list is called and ``where`` it was given.

    Raises:
        ActionError: an index is no integer, out of range, or given twice; a name is not known.
    """
    if indices is None:
        return None
    if isinstance(indices, str) or not hasattr(indices, "__iter__"):
        raise ActionError(f"{where}: {what} is a list of indices; write {what}=[{indices!r}]")
    said = "{}: {}={!r}".format
    chosen = [checked_index(i, count, names, Said(partial(said, where, what, i))) for i in indices]
    for index in chosen:
        if chosen.count(index) > 1:
            raise ActionError(f"{where}: {what}={index} is given twice")
    return tuple(chosen)


def checked_index(
    given: int | str, count: int | None, names: Sequence[str], said: Said | str
) -> int:
    """Check an index, or a name out of ``names``, as :func:`checked_indices` does, and return it.

    ``said`` is what was said and where, for messages.
    """
    if isinstance(given, str):
        if not names:
            when = "" if count is not None else " before it runs, unless require_outputs=True"
            raise ActionError(f"{said} has to be an index, there are no names{when}")
        if given not in names:
            raise ActionError(f"{said} is none of {list(names)}")
        given = names.index(given)
    try:
        index = builtin_operator.index(given)
    except TypeError:
        raise ActionError(f"{said} is not an integer") from None
    if count is None:
        return index
    if not -count <= index < count:
        raise ActionError(f"{said} is out of range, there are {count}")
    return index % count


def checked_options(
    routine: Callable[..., Any], options: Mapping[str, Any], known: Sequence[str], where: Said | str
) -> None:
    """Check that a routine takes the keyword arguments that an insertion passes on to it.

    One whose signature Python cannot tell takes anything. What it does not take may be a
    misspelling of the ``known`` options of the insertion itself.

    Raises:
        ActionError: it does not take one of them.
    """
    import difflib
    import inspect

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
                    f"{where}: there is no {option!r} at this point, and the routine takes none"
                ) from None
            near = difflib.get_close_matches(option, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ActionError(f"{where}: the routine takes no {option!r}{hint}") from None


@dataclass(slots=True, eq=False)
class Action:
    """An action is a routine inserted at one point of one operator; it is never changed.

    ``indices`` chooses the tensors it is given (all of them for None), in that order. It only
    ``observes`` if its routine is annotated to return None; a driver may then leave out what
    would be needed to substitute something. At two points it ``replaces`` the operator, so that its
    results stand for the outputs. A gradient of which the backend has some rows is given
    to it ``whole``, as other backends have it, or else as the backend does. What is ``asked`` for
    of the forward side is given to it after the selected tensors. To one that replaces the operator
    and is to have the ``original``, that is given ahead of them.
    """

    point: Point
    routine: Callable[..., Any]
    tool: Tool
    indices: tuple[int, ...] | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    pure: bool = False
    differentiable: bool = False
    asked: tuple[Ask, ...] = ()
    original: bool = False
    whole: bool = False
    observes: bool = field(init=False)
    replaces: bool = field(init=False)
    _selects: bool = field(init=False)  # whether it is given anything but all tensors

    def __post_init__(self) -> None:
        annotations = getattr(self.routine, "__annotations__", {})
        self.observes = annotations.get("return", ...) in (None, "None")
        self.replaces = self.point in (Point.REPLACE_OP, Point.REPLACE_BACKWARD_OP)
        self._selects = self.indices is not None or bool(self.asked) or self.original

    def error(self, reason: str, operator: Operator) -> RoutineError:
        """Return an error that names this action at an operator."""
        name, routine = self.tool.name, name_of(self.routine)
        return RoutineError(reason, name, routine, operator, self.point.value)

    def call(self, tensors: Sequence[Any], operator: Operator, forward: Forward = NOTHING) -> Any:
        """Run the routine on the selected tensors, and what it asks for of the forward side.

        Raises:
            RoutineError: from whatever the routine raised.
        """
        selected = self._selected(tensors, operator, forward) if self._selects else tensors
        try:
            return call(self.tool, self.routine, selected, self.kwargs)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise self.error(reason, operator) from error

    def _selected(
        self, tensors: Sequence[Any], operator: Operator, forward: Forward
    ) -> Sequence[Any]:
        """Return what the routine is given by position."""
        selected: Sequence[Any] = tensors
        if self.indices is not None:
            try:
                selected = [tensors[i] for i in self.indices]
            except IndexError:
                chosen = f"selects tensors {list(self.indices)}"
                reason = f"{chosen}, this execution has {len(tensors)}"
                raise self.error(reason, operator) from None
        if self.asked:
            try:
                selected = [*selected, *self.asks(tensors, forward).values()]
            except LookupError:
                names = ", ".join(f"{ask.what}[{ask.index}]" for ask in self.asked)
                reason = f"asks for {names}, and this execution does not have all of them"
                raise self.error(reason, operator) from None
        if self.original:
            assert forward.run is not None
            run = original(forward.run, tensors, self._chosen(len(tensors)))
            selected = [run, *selected]
        return selected

    def _chosen(self, count: int) -> Sequence[int]:
        """Return the indices of what it selects out of so many tensors."""
        return range(count) if self.indices is None else self.indices

    def asks(self, tensors: Sequence[Any], forward: Forward) -> dict[Ask, Any]:
        """Return the tensors of the forward side that it asks for, each by its :class:`Ask`.

        Before an operator its inputs are those that the routine before left.

        Raises:
            LookupError: this execution does not have it.
        """
        ahead = self.point is Point.BEFORE_OP
        return {
            ask: tensors[ask.index] if ahead and ask.what == "inputs" else forward.tensor(ask)
            for ask in self.asked
        }

    def run(
        self,
        given: Sequence[Any],
        like: Sequence[Any],
        operator: Operator,
        check: Check,
        forward: Forward = NOTHING,
    ) -> Sequence[Any]:
        """Run the routine, and put what it returns in the place of what that stands for.

        Args:
            given: what it may select from. None entries (no gradient) are passed as they are.
            like: what its results stand for: the originals of a replacement, else ``given``.
            operator: the operator at which it runs.
            check: says whether a substitute can stand for the tensor that it replaces.
            forward: what it may ask for of the forward side.

        Returns:
            ``like`` itself when nothing was replaced, else a new list.

        Raises:
            RoutineError: the routine failed, or returned what cannot be used.
        """
        return self.substituted(self.call(given, operator, forward), like, operator, check)

    def substituted(
        self, result: Any, like: Sequence[Any], operator: Operator, check: Check
    ) -> Sequence[Any]:
        """Return ``like`` with what the routine returned in the place of what that stands for."""
        if result is None:
            return like
        indices = range(len(like)) if self.replaces else self._chosen(len(like))
        found = list(like)
        values = self.substitutes(result, len(indices), operator)
        for index, value in zip(indices, values, strict=True):
            if value is None:
                continue
            reason = check(None if self.differentiable else like[index], value)
            if reason is not None:
                raise self.error(reason, operator)
            found[index] = value
        return found

    def substitutes(self, result: Any, count: int, operator: Operator) -> Sequence[Any]:
        """Return what a routine returned, as ``count`` values of which None stands for "as it was".

        Raises:
            RoutineError: the numbers do not match.
        """
        if self.observes:
            raise self.error("is annotated to return None, and returned something", operator)
        values = result if isinstance(result, (tuple, list)) else (result,)
        if len(values) != count:
            expected = f"expected {count} tensor{'s' * (count != 1)} to be returned"
            raise self.error(f"{expected}, got {len(values)}", operator)
        return values
