"""A plan is what the tools decided about an operator, in the order in which it is carried out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from amanda._contexts.action import Action
from amanda._contexts.forward import Ask
from amanda._errors import ActionError
from amanda._operators.operator import Operator
from amanda._operators.points import POINTS, Point, View
from amanda._operators.producers import InputProducers
from amanda._plans.selection import Selection
from amanda._threads.routine import name_of
from amanda._tools.subscription import Subscription
from amanda._tools.tool import Tool

if TYPE_CHECKING:
    from amanda._plans.context_map import Translation  # which most programs need not import
    from amanda._plans.engine import Engine  # which makes plans

# What each subscription decided, in the order in which they decide.
Decisions: TypeAlias = Mapping[Selection, tuple[Action, ...]]


@dataclass(slots=True, eq=False, repr=False)
class Plan:
    """A plan is what to do at the executions of an operator.

    That may be a backward operator. Of the gradient of an operator as a whole ``before`` is what to
    run on the gradients of its outputs, and ``after`` on those of its inputs.

    Attributes:
        actions: what was decided, in the order of the tools.
        before, replace, after: what to run of that, in order (``docs/semantics.md#s1-order``).
        pending: analyses that wait for the outputs of the first execution; show them to
            :meth:`Engine.complete`.
        backward: whether a tool wants to see the operator's backward operators.
        gradient: whether a tool wants to see its gradient as a whole.
        whole: what to do at that gradient, where it was decided along with this: at a module.
        inside: the engine for operators that run inside this one; see :meth:`Engine.inside`.
        producers: by the tools that want to know, where to tell what makes the operator's inputs.
        asked: what routines are given of the forward side beside the tensors at their points.
        is_noop: whether the operator may simply run.
        only_looks: whether all routines are known to return nothing.
    """

    operator: InitVar[Operator]
    view: View
    decisions: Decisions
    pending: tuple[Selection, ...] = ()
    backward: bool = False
    gradient: bool = False
    inside: Engine | None = None
    producers: Mapping[Tool, InputProducers] = field(default_factory=dict)
    whole: Plan | None = field(init=False, default=None)
    actions: tuple[Action, ...] = field(init=False)
    before: tuple[Action, ...] = field(init=False)
    replace: Action | None = field(init=False)
    after: tuple[Action, ...] = field(init=False)
    asked: frozenset[Ask] = field(init=False)
    is_noop: bool = field(init=False)
    only_looks: bool = field(init=False)

    def __post_init__(self, operator: Operator) -> None:
        view = self.view
        if view is View.MODULE:
            view, self.whole = View.FORWARD, Plan(operator, View.GRADIENT, self.decisions)
            self.gradient = not self.whole.is_noop
        self.actions = tuple(action for made in self.decisions.values() for action in made)
        before, *replace, after = POINTS[view]
        self.before = _at(before, self.actions)
        self.replace = _only(replace[0], self.actions, operator) if replace else None
        self.after = _at(after, self.actions, after=True)
        run = [*self.before, *filter(None, [self.replace]), *self.after]
        self.asked = frozenset(ask for action in run for ask in action.asked)
        watched = self.backward or self.gradient or self.producers
        self.only_looks = all(action.observes for action in run)
        self.is_noop = not (run or self.pending or watched)


@dataclass(slots=True, eq=False, repr=False)
class Record:
    """A record is what an engine knows of an operator, or backward operator, as long as that lives.

    Attributes:
        plan: what to do at its executions; None where that is still to be decided.
        gradient: the same for its gradient as a whole.
        parameters: for each input, whether it is a parameter of the model; None if it was not seen.
        translations: what it is in the vocabularies of tools that do not speak the backend's.
        decided: what each subscription decided about it.
    """

    plan: Plan | None = None
    gradient: Plan | None = None
    parameters: Sequence[bool] | None = None
    translations: Mapping[str, Translation] = field(default_factory=dict)
    decided: dict[Subscription, tuple[Action, ...]] = field(default_factory=dict)


def _at(point: Point, actions: Iterable[Action], after: bool = False) -> tuple[Action, ...]:
    """Return the actions at a point, in order; innermost tools are next to the operator."""
    there = (action for action in actions if action.point is point)
    return tuple(sorted(there, key=lambda action: action.tool.innermost is not after))


def _only(point: Point, actions: Iterable[Action], operator: Operator) -> Action | None:
    there = _at(point, actions)
    if len(there) > 1:
        names = " and ".join(f"{a.tool.name} ({name_of(a.routine)})" for a in there)
        raise ActionError(f"operator {operator.named} is replaced more than once, by {names}")
    return there[0] if there else None
