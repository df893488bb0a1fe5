"""Plans: what the tools decided about an operator, in the order in which it is carried out."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING

from amanda._action import Action, Point, name_of
from amanda._errors import ActionError

if TYPE_CHECKING:
    from amanda._engine import Engine
    from amanda._operator import Operator
    from amanda._tool import Subscription

    Actions = tuple[Action, ...]
    # Each action with the rank of the subscription that decided it.
    Decisions = tuple[tuple[int, Action], ...]


@dataclass(slots=True, eq=False, repr=False)
class Plan:
    """What to do at the executions of one forward operator.

    Attributes:
        before, replace, after: what to run, in the order of S1.
        pending: analyses that wait for the outputs of the first execution; show them to
            :meth:`Engine.complete`.
        backward: whether a tool wants to see the operator's backward operators.
        gradient: whether a tool wants to see its gradient as a whole.
        inside: the engine for operators that run inside this one; None when nobody looks. A tool
            that wants this one takes it as one; only tools that do not want it look inside.
        is_noop: whether the operator may simply run.
    """

    operator: InitVar[Operator]
    decisions: Decisions
    pending: tuple[Subscription, ...]
    backward: bool
    gradient: bool
    inside: Engine | None
    before: Actions = field(init=False)
    replace: Action | None = field(init=False)
    after: Actions = field(init=False)
    is_noop: bool = field(init=False)

    def __post_init__(self, operator: Operator) -> None:
        self.before = _at(Point.BEFORE_OP, self.decisions)
        self.replace = _only(Point.REPLACE_OP, self.decisions, operator)
        self.after = _at(Point.AFTER_OP, self.decisions)
        self.is_noop = not (self.decisions or self.pending or self.backward or self.gradient)


@dataclass(slots=True, eq=False, repr=False)
class BackwardPlan:
    """What to do at the executions of one backward operator; as in :class:`Plan`."""

    backward_operator: InitVar[Operator]
    decisions: Decisions
    pending: tuple[Subscription, ...]
    before: Actions = field(init=False)
    replace: Action | None = field(init=False)
    after: Actions = field(init=False)
    is_noop: bool = field(init=False)

    def __post_init__(self, backward_operator: Operator) -> None:
        self.before = _at(Point.BEFORE_BACKWARD_OP, self.decisions)
        self.replace = _only(Point.REPLACE_BACKWARD_OP, self.decisions, backward_operator)
        self.after = _at(Point.AFTER_BACKWARD_OP, self.decisions)
        self.is_noop = not (self.decisions or self.pending)


@dataclass(slots=True, eq=False, repr=False)
class GradientPlan:
    """What to do with the gradient of one operator as a whole; as in :class:`Plan`."""

    decisions: InitVar[Decisions]
    on_outputs: Actions = field(init=False)
    on_inputs: Actions = field(init=False)
    is_noop: bool = field(init=False)

    def __post_init__(self, decisions: Decisions) -> None:
        self.on_outputs = _at(Point.ON_GRAD_OUTPUTS, decisions)
        self.on_inputs = _at(Point.ON_GRAD_INPUTS, decisions)
        self.is_noop = not decisions


_AFTER = {Point.AFTER_OP, Point.AFTER_BACKWARD_OP, Point.ON_GRAD_INPUTS}


def _at(point: Point, decisions: Decisions) -> Actions:
    """The actions at a point, in the order of S1; innermost tools are next to the operator."""
    after = point in _AFTER
    ranked = sorted(decisions, key=lambda d: (d[1].tool.innermost is not after, d[0]))
    return tuple(action for _, action in ranked if action.point is point)


def _only(point: Point, decisions: Decisions, operator: Operator) -> Action | None:
    actions = _at(point, decisions)
    if len(actions) > 1:
        names = " and ".join(f"{a.tool.name} ({name_of(a.routine)})" for a in actions)
        raise ActionError(f"operator {operator.id!r} is replaced more than once, by {names}")
    return actions[0] if actions else None
