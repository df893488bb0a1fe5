"""What translates the vocabulary of a backend into another one has to be like this.

A map announces itself by an entry point in the group ``amanda.context_maps`` whose name is
``<backend's vocabulary>:<other vocabulary>`` and whose value is a :class:`ContextMap`; it is
loaded when a tool first needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from amanda._contexts.analysis import Analysis
    from amanda._drivers.driver import Driver
    from amanda._operators.operator import Execution
    from amanda._plans.selection import Selection
    from amanda._tools.subscription import Subscription


class Translation(Protocol):
    """A translation is what one operator is in another vocabulary."""

    @property
    def types(self) -> Collection[str]:
        """Return the types under which tools of that vocabulary select it."""

    def analysis(self, native: Analysis) -> Analysis:
        """Return what a tool of that vocabulary is shown in place of an analysis.

        What it inserts there has to arrive as an insertion into ``native``.
        """


class Composite(NamedTuple):
    """A composite is several operators of a graph that are one in another vocabulary.

    Attributes:
        type: what the context map calls it among the backend's types; no operator has that type.
        parts: the names of its operators, of which the last one gives the result.
        inputs: the tensors that it takes: names of the operators that make them, and which output.
        input_names: their names.
        attrs: its attributes.
    """

    type: str
    parts: Sequence[str]
    inputs: Sequence[tuple[str, int]]
    input_names: Sequence[str]
    attrs: Mapping[str, Any]


class ContextMap(Protocol):
    """A context map has tools of another vocabulary see the operators of a backend."""

    def select(self, subscription: Subscription, driver: Driver) -> Selection:
        """Tell what a subscription of a tool of that vocabulary looks at."""

    def translate(self, execution: Execution, driver: Driver) -> Translation:
        """Translate an operator, by an execution that shows its forward side."""

    def composites(self, graph: Any, driver: Driver) -> Sequence[Composite]:
        """Find what is one operator there and several in a graph; no operator is a part of two."""

    def functions(self) -> Mapping[str, str]:
        """List the Python functions of the backend that may be one operator there, and are several
        here.

        They are listed by dotted names, under what the map calls them among the backend's types; no
        operator has such a type.
        """

    def is_one(self, execution: Execution, driver: Driver) -> bool:
        """Tell whether a call of such a function is one operator there, for its arguments."""
