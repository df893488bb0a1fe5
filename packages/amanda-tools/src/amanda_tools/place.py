"""Operators as reports name them."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from amanda import OpContext, Operator


class Place(NamedTuple):
    """An operator, by what a report keeps of it when the model is gone.

    Attributes:
        purpose: what it is there for: ``model``, ``optimizer``, ``data`` or ``initialization``.
    """

    id: str
    type: str
    scope: str
    purpose: str = "model"

    @classmethod
    def of(cls, operator: Operator) -> Place:
        """The place of an operator of a model."""
        return cls(operator.id, operator.type, operator.scope)

    @classmethod
    def at(cls, ctx: OpContext) -> Place:
        """The place of the operator under analysis, by which tables tell what it is there for."""
        return cls.of(ctx.op)._replace(purpose=ctx.driver.purpose(ctx.op))

    @property
    def modules(self) -> tuple[str, ...]:
        """Names along the scope, outermost first; frameworks write ``a.b`` or ``a/b``."""
        return _split(self.scope)


@functools.lru_cache(maxsize=4096)
def _split(scope: str) -> tuple[str, ...]:
    return tuple(name for name in re.split("[./]", scope) if name)
