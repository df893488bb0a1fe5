"""What a tool makes of parameters is written into the model here, so that this needs no tool."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from amanda._action import Action, Point, name_of
from amanda._errors import AmandaError, UnsupportedError
from amanda._forward import Forward
from amanda._operator import ByOperator, Operator

if TYPE_CHECKING:
    from amanda._driver import Driver
    from amanda._subscription import Subscription
    from amanda._tool import Tool


class Stored(abc.ABC):
    """This tells what part of which parameter of a model an operator is given, and writes to it.

    It does not keep the parameter alive.
    """

    @abc.abstractmethod
    def source(self, model: Any) -> Any:
        """Return the parameter, as ``Parameter.source`` has it, if ``model`` has it; else None."""

    @abc.abstractmethod
    def read(self, model: Any) -> Any:
        """Return what the operator is given, as a tensor of its own.

        Raises:
            UnsupportedError: it is not known how that comes from the parameter.
        """

    @abc.abstractmethod
    def write(self, model: Any, tensor: Any) -> None:
        """Have the parameter hold what :meth:`read` then gives again, as far as it can."""

    def places(self) -> Any:
        """Return, for each element that the operator is given, its place in the flat parameter.

        It is an array of NumPy, or None where these places are not known.
        """
        return None


@dataclass(slots=True, eq=False)
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
            tensors = action.run(tensors, tensors, self.operator, check, forward)
        for index, place in places.items():
            yield Computed(self.operator, place, given[index], tensors[index])

    def concerns(self, model: Any, sources: set[int]) -> bool:
        """Tell whether one of its parameters is one of these, by the ids of their sources."""
        places = self.stored.values()
        return any(place is not None and id(place.source(model)) in sources for place in places)


class Computed(NamedTuple):
    """This is what an operator gets of a parameter, and what the tool's routines make of it."""

    operator: Operator
    stored: Stored
    given: Any
    tensor: Any


def note(
    uses: ByOperator[Use],
    subscription: Subscription,
    driver: Driver,
    execution: Any,
    parameters: Sequence[bool],
    actions: Sequence[Action],
) -> None:
    """Keep what a tool decided about an operator, if that or its parameters may matter."""
    operator = execution.operator
    changing = [action for action in actions if not action.observes]
    if operator.serial not in uses:
        found = enumerate(zip(execution.inputs, parameters, strict=True))
        stored = {
            i: driver.stored(tensor)
            for i, (tensor, is_one) in found
            if is_one or (tensor is not None and driver.is_looked_up(tensor, operator))
        }
        if not changing and not stored:
            return
        use = Use(operator.snapshot(), driver, len(execution.inputs), stored)
        uses.keep(operator, use)
    uses[operator.serial].decided[subscription] = changing


def run_on_parameters(tool: Tool, model: Any) -> None:
    """Carry out :meth:`amanda.Tool.run_on_parameters`."""
    for use in list(tool.uses.values()):
        with use.driver.at_rest():
            if any(use.decided.values()):
                list(use.computed(tool, model))


def make_permanent(tool: Tool, model: Any) -> list[str]:
    """Carry out :meth:`amanda.Tool.make_permanent`."""
    written: list[str] = []
    for driver in dict.fromkeys(use.driver for use in tool.uses.values()):
        with driver.at_rest():
            uses = [use for use in tool.uses.values() if use.driver is driver]
            written += _written(tool, model, driver, uses)
    if not written:
        raise AmandaError(
            f"{tool.name} has replaced no parameter of this {type(model).__name__}; run it under "
            "the tool first, and give what holds the parameters: the model, its variables, or the "
            "session that runs it"
        )
    return written


def _written(tool: Tool, model: Any, driver: Driver, uses: Sequence[Use]) -> list[str]:
    """Replace parameters in the model, and return the ids of the operators that are given these."""
    acting = [use for use in uses if any(use.decided.values())]
    found: list[Computed] = []
    for use in acting:
        made = list(use.computed(tool, model))
        _check_repeats(tool, use, made, use.computed(tool, model))
        found += made
    replaced = [computed for computed in found if computed.tensor is not computed.given]
    sources = {id(computed.stored.source(model)) for computed in replaced}
    others = [use for use in uses if use not in acting and use.concerns(model, sources)]
    found += [computed for use in others for computed in use.computed(tool, model)]
    found = [computed for computed in found if id(computed.stored.source(model)) in sources]
    wanted = [_bits(driver, computed.tensor) for computed in found]
    for computed in replaced:
        computed.stored.write(model, computed.tensor)
    for computed, expected in zip(found, wanted, strict=True):
        if _bits(driver, computed.stored.read(model)) == expected:
            continue
        for before in found:
            before.stored.write(model, before.given)
        raise UnsupportedError(
            f"{tool.name}: a parameter of {computed.operator.named} cannot hold what the tool has "
            "that be given: another operator is given it otherwise, or it is given it in another "
            "type; choose operators that share no parameters, or run the model under the tool"
        )
    return list(dict.fromkeys(computed.operator.id for computed in replaced))


def _check_repeats(
    tool: Tool, use: Use, once: Iterable[Computed], again: Iterable[Computed]
) -> None:
    """Refuse routines that make something else of the same values when they run again."""
    for first, second in zip(once, again, strict=True):
        if _bits(use.driver, first.tensor) != _bits(use.driver, second.tensor):
            routines = ", ".join(dict.fromkeys(name_of(a.routine) for a in use.actions(tool)))
            raise UnsupportedError(
                f"{tool.name}: what {routines} makes of a parameter of {use.operator.named} is "
                "something else when it runs again on the same values, as where it draws random "
                "numbers, so that it cannot be made permanent; draw them once and keep them "
                "(ctx.variable), or run the model under the tool"
            )


def _bits(driver: Driver, tensor: Any) -> bytes:
    """Return the elements of a tensor, in which one that is no number is like any other one."""
    array = driver.value(tensor).copy()
    array[array != array] = 0
    bits: bytes = array.tobytes()
    return bits
