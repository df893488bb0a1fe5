"""What tools decide about operators with parameters is noted, so that it can be made permanent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from amanda._contexts.action import Action
from amanda._contexts.analysis import Analysis
from amanda._contexts.forward import Forward
from amanda._drivers.driver import Driver
from amanda._drivers.tensors import Stored
from amanda._errors import UnsupportedError
from amanda._operators.operator import Operator
from amanda._operators.points import Point
from amanda._threads.routine import name_of
from amanda._tools.permanent import Computed
from amanda._tools.subscription import Subscription
from amanda._tools.tool import Tool


@dataclass(slots=True, eq=False, repr=False)
class Use:
    """A use is what a tool saw of an operator's parameters, and what it makes of them.

    ``stored`` has the inputs that are parameters, by index; ``decided`` what each subscription of
    the tool inserted ahead of or after the operator that may change what is computed.
    """

    operator: Operator
    driver: Driver
    inputs: int
    stored: dict[int, Stored | None]
    decided: dict[Subscription, Sequence[Action]] = field(default_factory=dict)

    def actions(self, tool: Tool) -> Iterator[Action]:
        """List what changes the parameters, in order.

        Raises:
            UnsupportedError: there is something that depends on more than these.
        """
        for subscription in tool.subscriptions:
            for action in self.decided.get(subscription, ()):
                chosen = range(self.inputs) if action.indices is None else action.indices
                needed = {*chosen, *(ask.index for ask in action.asked)}
                if action.point is not Point.BEFORE_OP or not needed <= self.stored.keys():
                    raise UnsupportedError(
                        f"{tool.name}: what {name_of(action.routine)} does at "
                        f"{action.point.value} of {self.operator.named} depends on more than "
                        "parameters of the model, so that it cannot be made permanent; run the "
                        "model under the tool, or annotate a routine '-> None' that only looks"
                    )
                yield action

    def computed(self, tool: Tool, model: Any) -> Iterator[Computed]:
        """Compute what the tool makes of each parameter, if these are of the model."""
        actions = list(self.actions(tool))
        places = {i: place for i, place in self.stored.items() if place is not None}
        if len(places) < len(self.stored):
            backend = f"parameters of {self.driver.backend} cannot be written to"
            raise UnsupportedError(f"{tool.name}: {self.operator.named}: {backend}")
        if any(place.source(model) is None for place in places.values()):
            return
        try:
            given = {index: place.read(model) for index, place in places.items()}
        except UnsupportedError as error:
            raise UnsupportedError(f"{tool.name}: {self.operator.named}: {error}") from error
        tensors: Sequence[Any] = [given.get(index) for index in range(self.inputs)]
        check = self.driver.incompatible_reason
        for action in actions:
            forward = Forward(inputs=tensors, given=given)
            found = action.run(tensors, tensors, self.operator, check, forward)
            both = zip(tensors, found, strict=True)
            tensors = [new if new is old else self.driver.as_tensor(new) for old, new in both]
        for index, place in places.items():
            yield Computed(self.operator, place, given[index], tensors[index])

    def concerns(self, model: Any, sources: set[int]) -> bool:
        """Tell whether one of its parameters is one of these, by the ids of their sources."""
        places = self.stored.values()
        return any(place is not None and id(place.source(model)) in sources for place in places)


def note(subscription: Subscription, analysis: Analysis) -> None:
    """Keep what a tool decided about an operator, if that or its parameters may matter."""
    uses, driver, execution = analysis.tool.uses, analysis.driver, analysis.execution
    operator = execution.operator
    changing = [action for action in analysis.actions if not action.observes]
    if operator.serial not in uses:
        found = enumerate(zip(execution.inputs, analysis.parameters, strict=True))
        stored = {
            i: driver.stored(tensor)
            for i, (tensor, is_one) in found
            if is_one or (tensor is not None and driver.is_looked_up(tensor, operator))
        }
        if not changing and not stored:
            return
        uses.keep(operator, Use(operator.snapshot(), driver, len(execution.inputs), stored))
    uses[operator.serial].decided[subscription] = changing
