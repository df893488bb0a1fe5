"""Operators as reports name them."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from amanda import Operator


class Place(NamedTuple):
    """An operator, by what a report keeps of it when the model is gone."""

    id: str
    type: str
    scope: str

    @classmethod
    def of(cls, operator: Operator) -> Place:
        """The place of an operator."""
        return cls(operator.id, operator.type, operator.scope)

    @property
    def modules(self) -> tuple[str, ...]:
        """Names along the scope, outermost first; frameworks write ``a.b`` or ``a/b``."""
        return _split(self.scope)


@functools.lru_cache(maxsize=4096)
def _split(scope: str) -> tuple[str, ...]:
    return tuple(name for name in re.split("[./]", scope) if name)
