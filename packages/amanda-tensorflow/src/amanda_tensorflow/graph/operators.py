"""Operators are nodes of a graph here, and live as long as what can run them."""

from __future__ import annotations

import copy
import weakref
from typing import TYPE_CHECKING, Any

from amanda import AmandaError, Operator

from amanda_tensorflow.graph.node_types import OPT_IN
from amanda_tensorflow.graph.sources import Locator
from amanda_tensorflow.notes import notes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from amanda_tensorflow.notes.layers import LayerCall


class TensorFlowOperator(Operator):
    """This is an operator that is a node of a graph.

    ``type`` is the node's ``op``, ``name`` its name in the graph where it was seen first.
    """

    def __init__(self, node: Callable[[], Any], **description: Any) -> None:
        super().__init__(backend="tensorflow", **{"locate": Locator(node), **description})
        self._node = node
        self._tied: dict[Hashable, TensorFlowOperator] = {}  # its parts and gradients live as long

    def snapshot(self) -> TensorFlowOperator:
        """Make an equal operator for tools to keep."""
        record = copy.copy(self)
        record._tied = {}  # else their plans would live as long as the snapshot
        return record

    @property
    def node_def(self) -> Any:
        """Return the NodeDef of the operator's node.

        Raises:
            AmandaError: its graph is gone, or it is a call of a layer, which is many nodes.
        """
        if self.is_module:
            raise AmandaError(f"operator {self.id!r} is a layer, which has no node of its own")
        operation = self._node()
        if operation is None:
            raise AmandaError(f"operator {self.id!r} is gone with its graph")
        return operation.node_def

    def gradient_operator(self, operation: Any, number: int) -> TensorFlowOperator:
        """Return the operator that computes this one's gradient.

        Args:
            operation: where it was seen first.
            number: which one of its type it is, from 1, among those for this operator.
        """
        op = operation.type
        place = f"gradient/{op}" if number == 1 else f"gradient/{op}#{number}"
        if place not in self._tied:
            self._tied[place] = TensorFlowOperator(
                finder(operation.graph, operation.name),
                id=f"{self.id}/{place}",
                type=op,
                name=operation.name,
                scope=self.scope,
                opt_in=op in OPT_IN,
                locate=self.locate,
            )
        return self._tied[place]

    def composite(self, type: str, vocabulary: str) -> TensorFlowOperator:
        """Return the operator of a vocabulary that this one gives the result of."""
        return self._again(
            ("composite", type, vocabulary),
            id=f"{self.id}/{type}",
            type=type,
            opt_in=self.opt_in and self.type not in OPT_IN,
            only_in=vocabulary,
        )

    def part(self, vocabularies: frozenset[str]) -> TensorFlowOperator:
        """Return this operator as a part of a composite; what is decided about that is apart."""
        return self._again(
            ("part", vocabularies),
            id=self.id,
            type=self.type,
            opt_in=self.opt_in,
            part_in=vocabularies,
        )

    @classmethod
    def of_layer(cls, call: LayerCall, id: str, scope: str) -> TensorFlowOperator:
        """Make an operator of a call of a layer; it is no node."""
        return cls(
            _no_node,
            id=id,
            type=call.type,
            name=call.name,
            scope=scope,
            is_module=True,
            locate=Locator(lambda: call),
        )

    def _again(self, key: Hashable, **description: Any) -> TensorFlowOperator:
        if key not in self._tied:
            self._tied[key] = TensorFlowOperator(
                self._node, name=self.name, scope=self.scope, locate=self.locate, **description
            )
        return self._tied[key]


def operators_of(graph: Any) -> weakref.WeakValueDictionary[str, TensorFlowOperator]:
    """Return the operators known so far in a graph, by the names of their nodes.

    Who runs them keeps them: a function, and for what sessions run the graph. A lost graph is a
    cycle, and would keep them until Python's garbage collector finds it, but a function is gone
    when the program drops it.
    """
    return notes_of(graph).operators


def _no_node() -> None:
    """Return no node, as a call of a layer has none."""


def finder(graph: Any, name: str) -> Callable[[], Any]:
    """Make a function that gives an operation while its graph is alive."""
    reference = weakref.ref(graph)

    def find() -> Any:
        graph = reference()
        return None if graph is None else graph.get_operation_by_name(name)

    return find
