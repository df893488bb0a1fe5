"""Graphs are written in the language of Graphviz."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from amanda_tools.tables import shape_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amanda_tools.graph.network import Edge, Network, Node


def dot(network: Network) -> str:
    """Write a network as text, with modules or name scopes as clusters."""
    lines = ["digraph amanda {", '  node [shape=box, fontname="sans-serif"];']
    if network.partial is not None:
        lines.append(f"  label={_quoted(f'partial: {network.partial}')}; labelloc=t;")
    clusters = _Clusters()
    for node in network.nodes.values():
        clusters.put(node, [name for name in re.split("[./]", node.scope) if name])
    lines += clusters.lines("  ", ())
    lines += (
        f"  {_quoted(e.producer)} -> {_quoted(e.consumer)} [label={_quoted(label_of(e))}];"
        for e in network.edges
    )
    return "\n".join([*lines, "}", ""])


def label_of(edge: Edge) -> str:
    """Return what is written beside an edge: its shape."""
    return "" if edge.shape is None else shape_text(edge.shape, "x")


class _Clusters:
    """This has nodes by the modules around them."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._inner: dict[str, _Clusters] = {}

    def put(self, node: Node, path: list[str]) -> None:
        """Add a node below a path."""
        where = self
        for name in path:
            where = where._inner.setdefault(name, _Clusters())
        where._nodes.append(node)

    def lines(self, indent: str, path: tuple[str, ...]) -> Iterator[str]:
        """Give the text of all that is in here."""
        for node in self._nodes:
            yield f"{indent}{_quoted(node.id)} [label={_quoted(node.type)}];"
        for name, inner in self._inner.items():
            within = (*path, name)
            yield f"{indent}subgraph {_quoted('cluster_' + '/'.join(within))} {{"
            yield f"{indent}  label={_quoted(name)};"
            yield from inner.lines(indent + "  ", within)
            yield f"{indent}}}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
