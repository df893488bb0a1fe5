"""A report names an operator by its place, which outlives the model."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, NamedTuple

from amanda.driving import numbered

from amanda_tools.numbering import Numbering

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amanda import OpContext, Operator

_models = Numbering()  # one for all tools, whose tables meet


class Model(NamedTuple):
    """This is a model, by what a report keeps of it when it is gone.

    Attributes:
        number: another one for each model of the process.
        type: its class.
    """

    number: int
    type: str


class Place(NamedTuple):
    """A place is an operator, by what a report keeps of it when the model is gone.

    Attributes:
        purpose: what it is there for: ``model``, ``optimizer``, ``data`` or ``initialization``.
        model: the model that it is in, as far as the driver can tell.
    """

    id: str
    type: str
    scope: str
    purpose: str = "model"
    model: Model | None = None

    @classmethod
    def of(cls, operator: Operator) -> Place:
        """Return the place of an operator of a model."""
        return cls(operator.id, operator.type, operator.scope)

    @classmethod
    def at(cls, ctx: OpContext) -> Place:
        """Return the place of the operator under analysis, with what it is there for."""
        purpose = ctx.driver.purpose(ctx.op)
        return cls.in_model(ctx) if purpose == "model" else cls.of(ctx.op)._replace(purpose=purpose)

    @classmethod
    def in_model(cls, ctx: OpContext) -> Place:
        """Return the place of an operator under analysis that is a model's, as in backward."""
        model = ctx.driver.model(ctx.op)
        if model is None:
            return cls.of(ctx.op)
        return cls.of(ctx.op)._replace(model=Model(_models.of(model), type(model).__name__))

    @property
    def modules(self) -> tuple[str, ...]:
        """List the names along the scope, outermost first; frameworks write ``a.b`` or ``a/b``."""
        return _split(self.scope)


def labels(models: Iterable[Model | None]) -> dict[Model, str]:
    """Return what each model is called: its class, with a number for the second one of it."""
    called: dict[Model, str] = {}
    numbers: dict[str, int] = {}
    for model in models:
        if model is not None and model not in called:
            number = numbers[model.type] = numbers.get(model.type, 0) + 1
            called[model] = numbered(model.type, number)
    return called


def source_text(operator: Operator) -> str | None:
    """Return file and line of the program's code that runs an operator; None if nobody can tell."""
    return None if operator.source is None else str(operator.source)


def paths(places: Iterable[Place]) -> dict[Place, tuple[str, ...]]:
    """Return the modules around each operator, outermost first.

    The model is the first of them where several models ran that modules alone do not tell apart:
    two have modules of one name, or some operators are in no module of their model.
    """
    modules = {place: place.modules for place in places}
    called = labels(place.model for place in modules)
    owners: dict[str, Model] = {}
    if len(called) < 2 or all(
        path and owners.setdefault(path[0], place.model) == place.model
        for place, path in modules.items()
        if place.model is not None
    ):
        return modules
    return {
        place: path if place.model is None else (called[place.model], *path)
        for place, path in modules.items()
    }


@functools.lru_cache(maxsize=4096)
def _split(scope: str) -> tuple[str, ...]:
    return tuple(name for name in re.split("[./]", scope) if name)
