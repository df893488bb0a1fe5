"""A network of operators and the edges between them can be asked, and exported."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from amanda_tools.graph.dot import dot
from amanda_tools.graph.picture import svg
from amanda_tools.optional_packages import needed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import amanda

    _Edges = dict[str, list["Edge"]]

AnOperator: TypeAlias = "str | amanda.Operator | amanda.OpContext"

# Types that pass on what they are given: views, copies, casts, identities and lists of tensors, in
# all vocabularies.
PLUMBING = frozenset(
    [
        *("Identity", "IdentityN", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand"),
        *("Bitcast", "Snapshot", "EnsureShape", "ExpandDims", "StopGradient", "PreventGradient"),
        *("view", "view_as", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand"),
        *("expand_as", "contiguous", "clone", "to", "type_as", "alias", "detach"),
        *("resolve_conj", "resolve_neg", "TensorListFromTensor", "TensorListStack"),
        *("TensorListGetItem", "TensorListSetItem", "TensorListPushBack", "TensorListPopBack"),
    ]
)
# Of those the inputs that they pass on; all others pass on the first one.
_TAKEN = {"TensorListSetItem": (0, 2), "TensorListPushBack": (0, 1)}


@dataclass(frozen=True)
class Node:
    """A node is an operator.

    Attributes:
        id, type, scope: the operator.
        source: file and line of the program that runs it, or made its node; None where unknown.
        inputs: the names of what it takes.
        parameters: the indices of those that are parameters of the model.
    """

    id: str
    type: str
    scope: str
    source: str | None = None
    inputs: list[str] = field(default_factory=list)
    parameters: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Edge:
    """An edge leads from an operator's output to an input of another one, or of its next execution.

    Attributes:
        producer: id of the operator that gives it.
        output: which of its outputs.
        consumer: id of the operator that takes it.
        input: which of its inputs.
        name: the name of that.
        shape, dtype: of the tensor when the consumer was first seen.
    """

    producer: str
    output: int
    consumer: str
    input: int
    name: str = ""
    shape: list[int | None] | None = None
    dtype: str | None = None


class Network:
    """A network has operators and the edges between them.

    An operator is asked for by its id, by itself, or by its context.

    Args:
        nodes: the operators, by their ids.
        edges: those between them.
        partial: why that is not all that there was to find; None if it is.
    """

    _by_end: tuple[Sequence[Edge], _Edges, _Edges] = (), {}, {}

    def __init__(
        self, nodes: Mapping[str, Node], edges: Iterable[Edge], partial: str | None = None
    ) -> None:
        self._nodes = dict(nodes)
        self._edges: Sequence[Edge] = list(edges)
        self._partial = partial

    @property
    def partial(self) -> str | None:
        """Tell why this is not all that there was to find; None if it is."""
        return self._partial

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Return the operators, by their ids, in the order in which they were first seen."""
        return self._nodes

    @property
    def edges(self) -> Sequence[Edge]:
        """Return what flows between them; the same object as long as it is the same."""
        return self._edges

    def producers(self, op: AnOperator, input: int | str | None = None) -> list[Edge]:
        """Return the edges into an operator, or into its input of that index or name.

        One input has several where it is another operator's output from time to time (a loop, a
        branch), or where several operators wrote parts of it in place. It has none where it is a
        parameter, a constant, or what the program was given.

        Raises:
            LookupError: there is no such operator.
        """
        into, _ = self._ends()
        edges = into.get(self._id(op), ())
        return [e for e in edges if input is None or input in (e.input, e.name)]

    def producer(self, op: AnOperator, input: int | str = 0) -> Edge | None:
        """Return the one edge into an input of an operator; None if there is none.

        Raises:
            LookupError: there is no such operator.
            ValueError: there are several.
        """
        edges = self.producers(op, input)
        if len(edges) > 1:
            raise ValueError(
                f"input {input!r} of {self._id(op)!r} is made by "
                f"{', '.join(repr(edge.producer) for edge in edges)}; producers() gives them all"
            )
        return edges[0] if edges else None

    def consumers(self, op: AnOperator, output: int | None = None) -> list[Edge]:
        """Return the edges out of an operator, or out of its output of that index.

        Raises:
            LookupError: there is no such operator.
        """
        _, out_of = self._ends()
        return [e for e in out_of.get(self._id(op), ()) if output in (None, e.output)]

    def predecessors(self, op: AnOperator) -> list[str]:
        """Return the ids of the operators that make what an operator takes."""
        return list(dict.fromkeys(edge.producer for edge in self.producers(op)))

    def successors(self, op: AnOperator) -> list[str]:
        """Return the ids of the operators that take what an operator makes."""
        return list(dict.fromkeys(edge.consumer for edge in self.consumers(op)))

    def without(self, types: Iterable[str] = PLUMBING) -> Network:
        """Return the network without operators of some types: edges lead past them.

        What comes out of one is taken to come from all that it is given.
        """
        types = frozenset(types)
        nodes = {id: n for id, n in self.nodes.items() if types.isdisjoint(_names(n.type))}
        edges: dict[tuple[str, int, str, int], Edge] = {}
        for edge in self.edges:
            if edge.consumer in nodes:
                for made in self._made(edge, nodes):
                    passed = replace(edge, producer=made.producer, output=made.output)
                    key = passed.producer, passed.output, passed.consumer, passed.input
                    edges.setdefault(key, passed)
        return Network(nodes, edges.values(), self.partial)

    def to_dict(self) -> dict[str, Any]:
        """Return nodes and edges as plain values; what is not all of it says so ahead of them."""
        return {
            **({} if self.partial is None else {"partial": self.partial}),
            "nodes": [asdict(node) for node in self.nodes.values()],
            "edges": [asdict(edge) for edge in self.edges],
        }

    def to_networkx(self) -> Any:
        """Make a ``networkx.MultiDiGraph`` of ids; nodes and edges have their fields as data.

        Raises:
            ModuleNotFoundError: networkx is not installed.
        """
        networkx = needed(
            "networkx",
            "to_networkx() needs networkx; python -m pip install networkx, or take nodes and "
            "edges, which need nothing",
        )
        graph = networkx.MultiDiGraph()
        for id, node in self.nodes.items():
            graph.add_node(id, **asdict(node))
        for edge in self.edges:
            graph.add_edge(edge.producer, edge.consumer, **asdict(edge))
        return graph

    def to_dot(self) -> str:
        """Write the graph in the language of Graphviz, with modules as clusters."""
        return dot(self)

    def to_svg(self) -> str:
        """Draw a picture as SVG, with what is computed first at the top."""
        return svg(self)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def _ends(self) -> tuple[_Edges, _Edges]:
        """Return the edges by their consumers, and by their producers."""
        edges = self.edges
        if self._by_end[0] is not edges:
            into: _Edges = {}
            out_of: _Edges = {}
            for edge in edges:
                into.setdefault(edge.consumer, []).append(edge)
                out_of.setdefault(edge.producer, []).append(edge)
            self._by_end = edges, into, out_of
        return self._by_end[1:]

    def _made(self, edge: Edge, nodes: Mapping[str, Node]) -> Iterator[Edge]:
        """Give the edges that stand for one once nodes are left out."""
        waiting, seen = [edge], set()
        while waiting:
            passed = waiting.pop(0)
            if passed.producer in nodes:
                yield passed
            elif (passed.producer, passed.output) not in seen:
                seen.add((passed.producer, passed.output))
                waiting += self._passes(passed.producer, passed.output)

    def _passes(self, id: str, output: int) -> list[Edge]:
        """List the edges into a node that is left out from which an output of it comes."""
        type = self.nodes[id].type
        for name in _names(type) & PLUMBING:  # what else it takes is a shape or an index
            taken = _TAKEN.get(name, (output if name == "IdentityN" else 0,))
            return [edge for input in taken for edge in self.producers(id, input)]
        return self.producers(id)

    def _id(self, op: AnOperator) -> str:
        id = op if isinstance(op, str) else op.op_id if hasattr(op, "op_id") else op.id
        if id not in self.nodes:
            near = difflib.get_close_matches(id, self.nodes, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise LookupError(f"no operator {id!r} is in the graph{hint}")
        return id


def _names(type: str) -> set[str]:
    """Return a type, and also without the name of a backend's vocabulary ahead of it."""
    return {type, type.rpartition("::")[2]}
