"""What a subscription looks at on a backend whose vocabulary its tool may not speak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from amanda._context_map import context_map
from amanda._errors import MissingContextMapError
from amanda._installed import warn_once
from amanda._registry import native_vocabularies
from amanda._spelling import alike
from amanda._tool import View

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from amanda._analysis import Execution
    from amanda._context_map import ContextMap, Translation
    from amanda._driver import Driver
    from amanda._operator import Operator
    from amanda._tool import Subscription, Tool


@dataclass(slots=True, eq=False)
class OperatorInfo:
    """What can be told of an operator on its forward side alone, kept for its backward.

    Attributes:
        parameters: for each input, whether it is a parameter of the model.
        translations: what the operator is in other vocabularies.
    """

    parameters: Sequence[bool]
    translations: Mapping[str, Translation]

    @classmethod
    def of(cls, execution: Execution, driver: Driver, vocabularies: Iterable[str]) -> OperatorInfo:
        """What an execution tells of its operator."""
        return cls(
            [driver.is_parameter(tensor) for tensor in execution.inputs],
            {
                vocabulary: context_map(driver.vocabulary, vocabulary).translate(execution, driver)
                for vocabulary in vocabularies
            },
        )


def is_understood(tool: Tool, driver: Driver) -> bool:
    """Whether a tool sees the operators of a backend: it speaks as that does, or a map translates.

    What speaks the own vocabulary of another backend sees nothing of this one.
    """
    if tool.vocabulary in (None, driver.vocabulary):
        return True
    try:
        context_map(driver.vocabulary, tool.vocabulary)
    except MissingContextMapError:
        return False
    return True


def check_understood(tool: Tool, drivers: Sequence[Driver]) -> None:
    """Say of which backends a tool sees nothing, though it is not meant for another one.

    Raises:
        MissingContextMapError: of none of them.
    """
    vocabulary = tool.vocabulary
    if vocabulary is None or vocabulary in native_vocabularies():
        return
    missing = []
    for driver in drivers:
        try:
            context_map(driver.vocabulary, vocabulary)
        except MissingContextMapError as error:
            missing.append((driver.backend, error))
    if missing and len(missing) == len(drivers):
        raise MissingContextMapError(f"{tool.name}: {missing[0][1]}") from None
    for backend, reason in missing:
        warn_once(f"{tool.name} sees nothing of {backend}: {reason}")


def composing(vocabularies: Iterable[str], driver: Driver) -> Mapping[str, ContextMap]:
    """The maps to these vocabularies that find composites in the backend's graphs."""
    maps = {v: context_map(driver.vocabulary, v) for v in sorted(vocabularies)}
    return {v: found for v, found in maps.items() if hasattr(found, "composites")}


def shows(operator: Operator, tool: Tool) -> bool:
    """Whether an operator is one for a tool, by its vocabulary: a composite or its parts."""
    vocabulary = tool.vocabulary
    return operator.only_in in (None, vocabulary) and vocabulary not in operator.part_in


def speaks_natively(subscription: Subscription, driver: Driver) -> bool:
    """Whether a subscription's tool speaks the backend's own vocabulary."""
    return subscription.tool.vocabulary in (None, driver.vocabulary)


def native_view(subscription: Subscription, driver: Driver) -> View:
    """Backward operators of another vocabulary are gradients as a whole."""
    if subscription.view is View.BACKWARD and not speaks_natively(subscription, driver):
        return View.GRADIENT
    return subscription.view


def selected(
    subscription: Subscription, driver: Driver, *, expected: bool = False
) -> frozenset[str] | None:
    """The types that a subscription selects, as a driver spells those of its own; None for all.

    ``expected`` leaves out those that the tool lists without expecting them to be there.
    """
    chosen = [subscription.ops, subscription.only]
    if expected and subscription.tool.lists_candidates:
        del chosen[0]
    found: frozenset[str] | None = None
    for types in chosen:
        if types is not None:
            if speaks_natively(subscription, driver):
                types = frozenset(map(driver.canonical_type, types))
            found = types if found is None else found & types
    return found


def forward_types(subscription: Subscription, driver: Driver) -> frozenset[str] | None:
    """The backend's types of forward operators that a subscription looks at; None for all."""
    ops, tool = selected(subscription, driver), subscription.tool
    if ops is None:
        return None
    if tool.vocabulary is not None and not speaks_natively(subscription, driver):
        if subscription.view is View.BACKWARD:
            ops = frozenset(type.removesuffix("Grad") for type in ops)
        return context_map(driver.vocabulary, tool.vocabulary).native_types(ops)
    return driver.forward_types(ops) if subscription.view is View.BACKWARD else ops


def misspelt(subscription: Subscription, driver: Driver) -> frozenset[str]:
    """The backend's types of forward operators that are to be watched, since they may be meant by
    one that a subscription selects and that is not there."""
    ops, vocabulary = selected(subscription, driver), subscription.tool.vocabulary
    if ops is None or subscription.view is View.BACKWARD:
        return frozenset()
    if vocabulary is None or speaks_natively(subscription, driver):
        return frozenset().union(*map(driver.alike, ops))
    translate = context_map(driver.vocabulary, vocabulary)
    unknown = (type for type in ops if translate.native_types(frozenset({type})) == frozenset())
    known: frozenset[str] = getattr(translate, "types", frozenset)()  # a map need not list them
    near = frozenset().union(*(alike(type, known) for type in unknown))
    return translate.native_types(near) or frozenset()


def wants_translated(
    subscription: Subscription, driver: Driver, translations: Mapping[str, Translation]
) -> bool:
    """Whether an operator is one that a subscription wants, in the vocabulary of its tool."""
    translation = translations.get(subscription.tool.vocabulary or "")
    ops = selected(subscription, driver)
    if translation is None or ops is None:
        return True
    return not ops.isdisjoint((translation.type, translation.type + "Grad"))
