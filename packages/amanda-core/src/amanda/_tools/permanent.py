"""What a tool makes of parameters is written into the model here, so that this needs no tool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from amanda._drivers.driver import Driver
from amanda._drivers.tensors import Stored
from amanda._errors import AmandaError, UnsupportedError
from amanda._operators.operator import Operator
from amanda._threads.active import disabled
from amanda._threads.routine import name_of

if TYPE_CHECKING:
    from amanda._plans.uses import Use
    from amanda._tools.tool import Tool


class Computed(NamedTuple):
    """This is what an operator gets of a parameter, and what the tool's routines make of it."""

    operator: Operator
    stored: Stored
    given: Any
    tensor: Any


def run_on_parameters(tool: Tool, model: Any) -> None:
    """Carry out :meth:`amanda.Tool.run_on_parameters`."""
    with disabled():
        for use in list(tool.uses.values()):
            if any(use.decided.values()):
                with use.driver.at_rest():
                    list(use.computed(tool, model))


def make_permanent(tool: Tool, model: Any) -> list[str]:
    """Carry out :meth:`amanda.Tool.make_permanent`."""
    written: list[str] = []
    with disabled():
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
    for computed in replaced:
        _check_seen(tool, model, computed, uses)
    others = [use for use in uses if use not in acting and use.concerns(model, sources)]
    found += [computed for use in others for computed in use.computed(tool, model)]
    found = [computed for computed in found if id(computed.stored.source(model)) in sources]
    wanted = [_bits(driver, computed.tensor) for computed in found]
    undo = [computed.stored.write(model, computed.tensor) for computed in replaced]
    for computed, expected in zip(found, wanted, strict=True):
        if _bits(driver, computed.stored.read(model)) == expected:
            continue
        for undo_one in reversed(undo):
            undo_one()
        raise UnsupportedError(
            f"{tool.name}: a parameter of {computed.operator.named} cannot hold what the tool has "
            "that be given: another operator is given it otherwise, or it is given it in another "
            "type; choose operators that share no parameters, or run the model under the tool"
        )
    return list(dict.fromkeys(computed.operator.id for computed in replaced))


def _check_seen(tool: Tool, model: Any, computed: Computed, uses: Iterable[Use]) -> None:
    """Refuse to replace a parameter that is known to be taken where the tool has not looked."""
    sources = {id(computed.stored.source(model))}
    seen = [use.operator for use in uses if use.concerns(model, sources)]
    other = computed.stored.taken_elsewhere(model, seen)
    if other is not None:
        raise UnsupportedError(
            f"{tool.name}: {other} takes a parameter of {computed.operator.named} too, and would "
            "be given what the tool makes of it, which has not looked there; run that under the "
            "tool as well, with an analysis routine registered for its type, even if that does "
            "nothing, or leave the model as it is and run it under the tool"
        )


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
