"""Copies of nodes, imported into a graph beside the originals."""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from amanda_tensorflow._internals import context, control_flow_util, graph_pb2
from amanda_tensorflow.body import control_inputs, data_inputs, set_inputs, split
from amanda_tensorflow.history import last_id, notes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amanda_tensorflow.frames import Frame

SCOPE = "amanda_shadow_"


class Copies:
    """Which nodes have to be copied: those that are new or changed, and all that depend on them."""

    def __init__(self, root: Frame) -> None:
        self._body = root.body
        self._root = root
        self.names = self._affected()
        self._share_random_operators()

    def import_into(self, graph: Any, scope: str, library: Sequence[Any]) -> None:
        """Add the copies to the graph."""
        definition = graph_pb2.GraphDef(versions=graph.graph_def_versions)
        definition.library.function.extend(library)
        outside: dict[str, Any] = {}
        waits: dict[str, list[Any]] = {}
        for name in self.names:
            node = definition.node.add()
            node.CopyFrom(self._body.nodes[name])
            node.attr.pop("_class", None)
            for tensor in data_inputs(node):
                producer, index = split(tensor)
                if producer not in self.names or tensor in self._root.fed:
                    outside[tensor] = graph.get_operation_by_name(producer).outputs[index]
            outer = [control for control in control_inputs(node) if control not in self.names]
            if outer:
                set_inputs(node, data_inputs(node), set(control_inputs(node)).difference(outer))
                waits[name] = [graph.get_operation_by_name(control) for control in outer]
        _hide(graph)
        finalized = graph.finalized
        first = last_id(graph)
        with (
            context.graph_mode(),
            graph.as_default(),
            graph.name_scope(None),
            graph.control_dependencies(None),
            tf.device(None),
        ):
            graph._unsafe_unfinalize()
            try:
                tf.graph_util.import_graph_def(definition, input_map=outside, name=scope)
                for name, operations in waits.items():
                    graph.get_operation_by_name(f"{scope}/{name}")._add_control_inputs(operations)
            finally:
                notes_of(graph).copies.append((first, last_id(graph)))
                if finalized:
                    graph.finalize()

    def _affected(self) -> set[str]:
        consumers: dict[str, list[str]] = collections.defaultdict(list)
        changed = []
        for name, node in self._body.nodes.items():
            for producer in _producers(node, self._root.fed):
                consumers[producer].append(name)
            if (
                name not in self._root.inputs
                or data_inputs(node) != self._root.inputs[name]
                or any(child.edited for child in self._root.children.get(name, ()))
            ):
                changed.append(name)
        loops = self._loops()
        affected = set()
        while changed:
            name = changed.pop()
            if name not in affected:
                affected.add(name)
                changed += consumers[name]
                changed += loops.get(name, ())
        return affected

    def _loops(self) -> dict[str, list[str]]:
        """For each node in a loop of version 1 all nodes of that loop: it is copied as a whole."""
        members: dict[Any, list[str]] = collections.defaultdict(list)
        for name, operation in self._root.operations.items():
            while_context = control_flow_util.GetContainingWhileContext(
                operation._get_control_flow_context()
            )
            while while_context is not None and while_context.outer_context is not None:
                outer = control_flow_util.GetContainingWhileContext(while_context.outer_context)
                if outer is None:
                    break
                while_context = outer
            if while_context is not None:
                members[while_context].append(name)
        return {name: names for names in members.values() for name in names}

    def _share_random_operators(self) -> None:
        """A random operator that needs only shapes keeps its stream: the original is asked.

        What it needs is then computed a second time, so nothing of that may have side effects.
        """
        graph = self._root.graph
        for name in [n for n in self.names if n in self._root.inputs]:
            operation = graph.get_operation_by_name(name)
            if "seed" in self._body.nodes[name].attr and operation.op_def.is_stateful:
                needed = behind([operation], self._root.fed) - {operation}
                again = [op for op in needed if op.name in self.names]
                changed = data_inputs(self._body.nodes[name]) != self._root.inputs[name]
                if not changed and not any(op.op_def.is_stateful for op in again):
                    self.names.discard(name)


def _hide(graph: Any) -> None:
    """Leave copies out of what is exported of a graph, so that checkpoints stay as they were."""
    as_graph_def = graph.as_graph_def
    if hasattr(as_graph_def, "__wrapped__"):
        return

    @functools.wraps(as_graph_def)
    def without_copies(*args: Any, **kwargs: Any) -> Any:
        definition = as_graph_def(*args, **kwargs)
        nodes = [node for node in definition.node if not node.name.startswith(SCOPE)]
        functions = [f for f in definition.library.function if "amanda_" not in f.signature.name]
        definition.ClearField("node")
        definition.node.extend(nodes)
        definition.library.ClearField("function")
        definition.library.function.extend(functions)
        return definition

    graph.as_graph_def = without_copies


def _producers(node: Any, fed: frozenset[str]) -> Iterator[str]:
    for tensor in data_inputs(node):
        if tensor not in fed:
            yield split(tensor)[0]
    yield from control_inputs(node)


def behind(operations: Sequence[Any], fed: frozenset[str]) -> set[Any]:
    """The operations that run when some are asked for."""
    found: set[Any] = set()
    waiting = list(operations)
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting += (tensor.op for tensor in operation.inputs if tensor.name not in fed)
            waiting += operation.control_inputs
    return found
