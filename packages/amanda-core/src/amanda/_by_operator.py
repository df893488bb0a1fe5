"""What is kept for each operator, and only as long as the operator lives."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amanda._operator import Operator


class ByOperator(dict[int, Any]):
    """A dict keyed by ``operator.serial`` that forgets an operator when it is gone."""

    __slots__ = ("__weakref__", "_alive")

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[int, weakref.ref[Operator]] = {}

    def keep(self, operator: Operator, value: Any) -> None:
        """Keep ``value`` for as long as ``operator`` lives."""
        serial = operator.serial
        self[serial] = value
        if serial not in self._alive:
            this = weakref.ref(self)

            def forget(_: weakref.ref[Operator]) -> None:
                table = this()
                if table is not None:
                    table.pop(serial, None)
                    table._alive.pop(serial, None)

            self._alive[serial] = weakref.ref(operator, forget)
