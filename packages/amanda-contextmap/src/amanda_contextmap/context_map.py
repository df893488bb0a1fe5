"""A context map has tools of another vocabulary see the operators of a backend."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from amanda.driving import Selection, View, alike

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda import Driver
    from amanda.driving import Composite, Execution, Subscription

    from amanda_contextmap.graph import Graph
    from amanda_contextmap.translation import Translation


class ContextMap(abc.ABC):
    """A context map translates one backend's vocabulary into another one, operator by operator.

    The gradient of an operator as a whole is a backward operator there, whose type has ``Grad``
    behind that of the operator.
    """

    @abc.abstractmethod
    def native_types(self, types: frozenset[str]) -> frozenset[str] | None:
        """List the types of the backend that may be one of ``types`` in the other vocabulary.

        None when that cannot be said, and all operators must be looked at.
        """

    @abc.abstractmethod
    def translate(self, execution: Execution, driver: Driver) -> Translation:
        """Return what an execution is in the other vocabulary.

        Args:
            execution: as the backend shows it, on its forward side.
            driver: the backend's driver, which tells parameters and known values.
        """

    def types(self) -> frozenset[str]:
        """List the types of the other vocabulary, of which a misspelt type may mean one."""
        return frozenset()

    def composites(self, graph: Graph, driver: Driver) -> Sequence[Composite]:
        """Find what is one operator there and several in a graph; no operator is a part of two."""
        return ()

    def select(self, subscription: Subscription, driver: Driver) -> Selection:
        """Return what a subscription of a tool of the other vocabulary looks at."""
        backward = subscription.view is View.BACKWARD
        view = View.GRADIENT if backward else subscription.view
        types = subscription.types()
        if types is None:
            return Selection(subscription, view, None, None)
        if backward:
            native = self.native_types(frozenset(type.removesuffix("Grad") for type in types))
            return Selection(subscription, view, types, native)
        native = self.native_types(types)
        unknown = (t for t in types if self.native_types(frozenset({t})) == frozenset())
        meant = frozenset().union(*(alike(type, self.types()) for type in unknown))
        near = self.native_types(meant) or frozenset()
        return Selection(subscription, view, types, native, near)
