"""This finds the nodes of a graph that compute gradients, and of which operators."""

from __future__ import annotations

import bisect
import collections
import itertools
from typing import TYPE_CHECKING, Any

from amanda_tensorflow.graph.body import split
from amanda_tensorflow.graph.gradients_by_name import calls_by_name, is_gradient
from amanda_tensorflow.graph.node_types import SHAPE_ALONE
from amanda_tensorflow.graph.operators import operators_of
from amanda_tensorflow.notes import GradientCall, notes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.operators import TensorFlowOperator


class Gradients:
    """The gradients of a graph are the nodes that compute them, and the operators these are of.

    Attributes:
        calls: the gradient functions that made nodes.
        nodes_of: the nodes that each of them made.
        of_node: the call that made a node.
        nodes: all nodes that have to do with gradients.
        unnoted: the nodes, by the names of the operators, whose gradients nobody noted when they
            were built, under None those of which names do not tell it either.
        custom: for the operator that a custom gradient is the gradient of, the forward nodes whose
            gradient it stands for.
        vectorized: those of these operators that are custom as they and their gradients were
            vectorized.
    """

    def __init__(self, graph: Any, operations: Mapping[str, Any]) -> None:
        self.calls: list[GradientCall] = []
        self.nodes_of: dict[GradientCall, list[str]] = {}
        self.of_node: dict[str, GradientCall] = {}
        self.nodes: set[str] = set()
        self.unnoted: dict[str | None, list[str]] = {}
        self._numbers: dict[str, int] = {}
        self._counts: collections.Counter[Any] = collections.Counter()
        notes = notes_of(graph)
        by_id = sorted((operation._id, name) for name, operation in operations.items())
        ids = [id for id, _ in by_id]

        def made(first: int, last: int) -> list[tuple[int, str]]:
            return by_id[bisect.bisect_right(ids, first) : bisect.bisect_right(ids, last)]

        computes_gradients = notes.computes_gradients()
        self.nodes = {name for id, name in by_id if computes_gradients(id)}
        self.custom: dict[str, list[str]] = {}
        self.vectorized: set[str] = set()
        for call in notes.calls:  # inner calls first: the innermost owns a node
            nodes = itertools.chain(*(made(*each) for each in call.made))
            names = [name for id, name in nodes if id not in notes.recomputed]
            if call.vectorized and call.forward_graph() is graph:
                call = self._of_vectorized(call, made, operations)
            owned = [name for name in names if self.of_node.setdefault(name, call) is call]
            if owned:
                self.calls.append(call)
                self.nodes_of[call] = owned
        self._add_by_names(graph, operations)
        for operator, ranges in notes.custom.items():
            self.custom[operator] = [name for each in ranges for _, name in made(*each)]

    def _of_vectorized(
        self,
        call: GradientCall,
        made: Callable[[int, int], list[tuple[int, str]]],
        operations: Mapping[str, Any],
    ) -> GradientCall:
        """Return the call of what runs for a forward operator that was vectorized too.

        The gradient of several nodes that run for one is custom, as it was vectorized by itself.
        """
        graph = call.forward_graph()
        while part := made(*notes_of(graph).vectorized.get(call.forward, (0, 0))):
            names = [name for _, name in part]
            call = call.for_many(call.made, operations[names[-1]].name)
            self.custom[call.forward] = names
            self.vectorized.add(call.forward)
        return call

    def _add_by_names(self, graph: Any, operations: Mapping[str, Any]) -> None:
        """Add what was built before anybody took notes."""
        unknown = {
            name: operation
            for name, operation in operations.items()
            if name not in self.nodes
            and is_gradient(operation.name)
            and operation._id not in notes_of(graph).recomputed
        }
        self.nodes.update(unknown)
        noted = {call.forward for call in self.calls}
        if unknown:
            for call, names in calls_by_name(graph, unknown):
                # the body of a loop tells its gradient the shapes, and computes no gradient then
                if all(operations[name].type in SHAPE_ALONE for name in names):
                    continue
                self.calls.append(call)
                self.nodes_of[call] = names
                self.of_node.update(dict.fromkeys(names, call))
                if call.forward not in noted:
                    self.unnoted[call.forward] = names
            self.unnoted[None] = sorted(unknown.keys() - self.of_node.keys())

    def operators(self) -> Iterator[TensorFlowOperator]:
        """List the operators, and layers, known so far whose gradients the graph computes."""
        graphs = {graph for call in self.calls if (graph := call.forward_graph()) is not None}
        for call in self.calls:
            graph = call.forward_graph()
            operator = None if graph is None else operators_of(graph).get(call.forward)
            if operator is not None:
                yield operator
        for graph in graphs:
            for layer in notes_of(graph).layers:
                if (known := layer.operator()) is not None:
                    yield known

    def number_of(self, name: str, op: str) -> int:
        """Tell which one of its type a node is, from 1, among those for one forward operator."""
        if name not in self._numbers:
            call = self.of_node[name]
            kind = (call.forward_graph, call.forward, op)
            self._counts[kind] += 1
            self._numbers[name] = self._counts[kind]
        return self._numbers[name]


def carrying(frame: Frame, call: GradientCall) -> Iterator[tuple[str, list[int]]]:
    """List the nodes of a gradient function that depend on the gradients which came in.

    Yields:
        Name of the node, and the positions of its inputs that are gradients.
    """
    reached = {frame.tensor(gradient) for gradient in call.grad_outputs if gradient is not None}
    nodes: set[str] = set()
    for name in frame.gradients.nodes_of[call]:
        positions = [
            position
            for position, tensor in enumerate(frame.inputs[name])
            if tensor in reached or split(tensor)[0] in nodes
        ]
        if positions:
            nodes.add(name)
            yield name, positions


def unreturned(frame: Frame) -> Iterator[tuple[str, set[int]]]:
    """List operators that ``tf.vectorized_map`` leaves out, while their gradients are computed.

    It makes nodes for what the mapped function returns, and an operator need not be behind that.

    Yields:
        Name of the node, and the positions of the inputs that its gradient reads.
    """
    left_out = {
        call.forward
        for call, made in frame.gradients.nodes_of.items()
        if call.vectorized
        and call.forward_graph() is frame.graph
        and call.forward in notes_of(frame.graph).vectorized
        and not frame.running.isdisjoint(made)
    }
    for name in sorted(left_out):
        node = frame.node(name)
        if node is not None and node not in frame.running | frame.gradients.nodes:
            yield node, _read_for_one(frame, node)


def _read_for_one(frame: Frame, node: str) -> set[int]:
    """List the inputs of an operator that its gradient reads, where that is for one element."""
    inputs = frame.inputs[node]
    calls = [
        call
        for call in notes_of(frame.graph).calls
        if not call.vectorized
        and call.forward == frame.operations[node].name
        and call.forward_graph() is frame.graph
    ]
    if not calls:
        return set(range(len(inputs)))
    read = {
        tensor
        for name, operation in frame.operations.items()
        if operation.type not in SHAPE_ALONE
        and any(first < operation._id <= last for call in calls for first, last in call.made)
        for tensor in frame.inputs[name]
    }
    return {position for position, tensor in enumerate(inputs) if tensor in read}
