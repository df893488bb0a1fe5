"""The tool ``Graph`` tells what flows from one operator to another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import amanda

from amanda_tools.findings import ended_early, field_names
from amanda_tools.formats import Saving, csv_of, json_of
from amanda_tools.graph.network import Edge, Network, Node
from amanda_tools.place import source_text

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from amanda.driving import Producers


class Graph(Network, Saving[Edge], amanda.Tool):
    """Tells which operator made an input, and which ones use an output.

    That is so across views, writes in place, and what no operator is seen of: detached tensors,
    TensorFlow's identities, calls, branches and loops. It is told for each place in a model, which
    has several producers where it is given another one at a later execution. Edges are there from
    the first execution on, so for tools that depend on this one in routines, not in analyses.
    Optimizers, initialization and the loading of data are left out, as are gradients. On
    TensorFlow, an edge lies within one call of a function or one run of a session; what passes
    through variables makes none.

    Args:
        out: a file to write when the scope is left: a picture (.svg), Graphviz (.dot), JSON (.json)
            or CSV (.csv), by its ending.
        namespace: the vocabulary of types and of the inputs' names and numbers, as for every tool:
            ``onnx`` for the portable one.
        plumbing: whether the file has views, casts and identities, of all types in PLUMBING.

    Raises:
        OSError: it cannot be written there.
        ValueError: its name ends in something else.
    """

    row_type = Edge
    rows_name = "edges"
    keys = ("producer", "output", "consumer", "input")
    endings = (".svg", ".dot", ".json", ".csv")

    def __init__(
        self,
        out: str | os.PathLike[str] | None = None,
        namespace: str | None = None,
        plumbing: bool = True,
    ) -> None:
        amanda.Tool.__init__(self, namespace=namespace)
        self.save_to(out)
        self._plumbing = plumbing
        self._nodes: dict[str, Node] = {}
        self._inputs: dict[int, tuple[Edge, Producers]] = {}
        self._edges: Sequence[Edge] = ()
        self._count = 0
        self.add_inst_for_op(self._meet, require_producers=True)

    @property
    def edges(self) -> Sequence[Edge]:
        """Return what flows between the operators, so far."""
        inputs = list(self._inputs.values())  # another thread may add to it
        count = sum(len(producers) for _, producers in inputs)
        if count != self._count:
            known = dict.fromkeys(
                (operator.id, output, number)
                for number, (_, producers) in enumerate(inputs)
                for operator, output in producers
                if operator.id in self._nodes
            )
            self._edges = [
                replace(inputs[number][0], producer=id, output=output)
                for id, output, number in known
            ]
            self._count = count
        return self._edges

    @property
    def partial(self) -> str | None:
        """Tell why this is not all that there was to find; None if it is."""
        return ended_early(self)

    def rows(self) -> Sequence[Edge]:
        """Return the edges."""
        return self.edges

    def found(self) -> str:
        """Tell how many operators there are, and edges."""
        return f"{len(self._nodes):,} operators, {len(self.edges):,} edges"

    def to_dict(self) -> dict[str, Any]:
        """Return operators and edges as plain values, and how those of several processes merge."""
        return {**super().to_dict(), "merge": self.how_to_merge()}

    def report(self) -> str:
        """Tell how many operators there are, and edges, with the tool's name ahead."""
        return f"graph: {self.found()}"

    def text(self, ending: str) -> str:
        """Write the graph in the format of an ending, with or without plumbing."""
        shown: Network = self if self._plumbing else self.without()
        if ending == ".svg":
            return shown.to_svg()
        if ending == ".dot":
            return shown.to_dot()
        if ending == ".json":
            return json_of({**shown.to_dict(), "merge": self.how_to_merge()}, indent=1) + "\n"
        return csv_of(field_names(Edge), shown.edges)

    def _meet(self, ctx: amanda.OpContext) -> None:
        op = ctx.op
        if op.opt_in or ctx.driver.purpose(op) != "model":
            return
        names = list(ctx.input_names)
        node = Node(op.id, op.type, op.scope, source_text(op), names, ctx.parameters)
        self._nodes.setdefault(op.id, node)
        for index, (name, tensor) in enumerate(zip(names, ctx.inputs, strict=True)):
            producers = ctx.producers(index)
            info = None if tensor is None else ctx.describe(tensor)
            shape = None if info is None or info.shape is None else list(info.shape)
            dtype = None if info is None else info.dtype
            edge = Edge("", 0, op.id, index, name, shape, dtype)
            self._inputs.setdefault(id(producers), (edge, producers))
