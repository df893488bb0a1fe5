"""Nodes call functions, which their attributes name and which are defined in various places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda_tensorflow._internals import context, function_def_to_graph
from amanda_tensorflow.notes import notes_of

if TYPE_CHECKING:
    from collections.abc import Callable

# Operators that call functions: the attributes that name them, and how many of the inputs are
# the operator's own rather than arguments.
_CALLS = {
    "PartitionedCall": (("f",), 0),
    "StatefulPartitionedCall": (("f",), 0),
    "If": (("then_branch", "else_branch"), 1),
    "StatelessIf": (("then_branch", "else_branch"), 1),
    "Case": (("branches",), 1),
    "StatelessCase": (("branches",), 1),
    "While": (("cond", "body"), 0),
    "StatelessWhile": (("cond", "body"), 0),
}
FUNCTION_CALLS = frozenset(["PartitionedCall", "StatefulPartitionedCall"])
BRANCHES = frozenset(["then_branch", "else_branch", "branches"])
STATEFUL = {
    "PartitionedCall": "StatefulPartitionedCall",
    "StatelessIf": "If",
    "StatelessCase": "Case",
    "StatelessWhile": "While",
}


def calls_functions(op: str) -> bool:
    """Tell whether nodes of a type call functions that are frames of their own."""
    return op in _CALLS


def arguments_begin(op: str) -> int:
    """Tell which input of a node that calls functions is their first argument."""
    return _CALLS[op][1]


def functions_of(node: Any) -> list[tuple[str, str]]:
    """List attribute and name of each function that a node calls in the ordinary course."""
    found: list[tuple[str, str]] = []
    for attr in _CALLS.get(node.op, ((), 0))[0]:
        value = node.attr[attr]
        found += (
            [(attr, f.name) for f in value.list.func]
            if attr == "branches"
            else [(attr, value.func.name)]
        )
    return found


def rename_function(node: Any, attr: str, old: str, new: str) -> None:
    """Have a node call another function."""
    if attr == "branches":
        for branch in node.attr[attr].list.func:
            if branch.name == old:
                branch.name = new
                return  # a function of two branches has two frames
    else:
        node.attr[attr].func.name = new


def find_function(graph: Any, name: str) -> Any:
    """Find the AtomicFunction of a name in a graph or those around it; None if there is none."""
    while graph is not None:
        function = graph._get_function(name)
        if function is not None:
            return function
        graph = getattr(graph, "outer_graph", None)
    return None


def definition_of(graph: Any, name: str) -> Any:
    """Find the definition of a function that a graph calls.

    Raises:
        NotFoundError: there is none.
    """
    function = find_function(graph, name)
    return function.definition if function else context.context().get_function_def(name)


def graph_of(owner: Any, name: str, definition: Any) -> Any:
    """Make a graph for a function of which only the definition is known, or return the one made."""
    graphs = notes_of(owner).functions
    if name not in graphs:
        with context.graph_mode(), owner.as_default():
            graphs[name] = function_def_to_graph.function_def_to_graph(
                definition, include_library_functions=True
            )
    return graphs[name]


def signatures(graph: Any) -> Callable[[str], Any]:
    """Make a function that finds the OpDef of a function that a graph's nodes call by name."""

    def signature_of(name: str) -> Any:
        function = find_function(graph, name)
        return None if function is None else function.definition.signature

    return signature_of
