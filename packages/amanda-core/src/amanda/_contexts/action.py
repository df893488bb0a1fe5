"""An action is one decision of an analysis routine; here is how its routine is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from amanda._contexts.forward import NOTHING, Ask, Forward, original
from amanda._errors import RoutineError
from amanda._operators.operator import Operator
from amanda._operators.points import Point
from amanda._threads.routine import call, name_of
from amanda._tools.tool import Tool

# Says why a substitute cannot stand for the tensor that it replaces, None if it can. The tensor is
# None where there is nothing to compare with.
Check: TypeAlias = Callable[[Any, Any], str | None]

_MAYBE_NOTHING = re.compile(r"\b(Any|None|NoneType|Optional|object)\b")


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
        self.replaces = self.point.replaces
        self._selects = self.indices is not None or bool(self.asked) or self.original

    @property
    def always_returns(self) -> bool:
        """Tell whether its routine is annotated to return something each time it runs."""
        returned = getattr(self.routine, "__annotations__", {}).get("return")
        return returned is not None and _MAYBE_NOTHING.search(str(returned)) is None

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
            places = range(len(tensors)) if self.indices is None else self.indices
            selected = [original(forward.run, tensors, places), *selected]
        return selected

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
        places = range(len(like)) if self.replaces or self.indices is None else self.indices
        found = list(like)
        values = self.substitutes(result, len(places), operator)
        for index, value in zip(places, values, strict=True):
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
