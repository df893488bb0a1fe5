"""Nodes that a session runs are copied, and imported into its graph beside the originals."""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from amanda import UnsupportedError

from amanda_tensorflow._internals import context, control_flow_util, graph_pb2
from amanda_tensorflow.graph.body import control_inputs, data_inputs, set_inputs, split
from amanda_tensorflow.graph.state import (
    draws_random_numbers,
    has_name_of_its_own,
    is_kept_by_node_name,
    is_reproducible,
    keeps_state,
    share_by_name,
)
from amanda_tensorflow.notes import last_id, notes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from amanda_tensorflow.graph.frames import Frame

SCOPE = "amanda_copy_"


class CopiedNodes:
    """These are the nodes to copy: those that are new or changed, and all that depend on them.

    A node that holds state of its own is not to be replaced by a copy. Where its inputs are what
    they were, it stays as it is. Otherwise its copy stands only for its place: when the session
    runs, the tensors that the copy takes go to the original, and the original's results to those
    who read the copy.

    Attributes:
        names: the nodes that are copied.
        grafted: those of them whose originals run in their place.
        alone: seeded random operators whose copies run, so that their streams begin anew.
    """

    def __init__(self, root: Frame) -> None:
        self._body = root.body
        self._root = root
        self._loops = self._nodes_of_loops()
        self._holding = {
            name
            for name in root.inputs.keys() & self._body.nodes.keys()
            if keeps_state(self._body.nodes[name].op)
        }
        self.names = self._affected()
        self.grafted: list[str] = []
        self.alone: list[str] = []
        self._exchanged: dict[str, str] = {}
        for name in root.inputs:
            if name in self._holding and (
                name in self.names or root.operations[name].control_inputs
            ):
                self._share(name)

    def connections(self, scope: str) -> list[tuple[str, str]]:
        """List what a session is to connect when it runs the copies in a scope: from, and to.

        What originals take comes first, since it is not to go to whoever takes their results.
        """
        taken = [(self.place(now, scope), before) for before, now in self._exchanged.items()]
        made = [
            (f"{name}:{index}", f"{scope}/{name}:{index}")
            for name in self.grafted
            for index in range(len(self._root.operations[name].outputs))
        ]
        return [(source, target) for source, target in taken if source != target] + made

    def place(self, tensor: str, scope: str) -> str:
        """Return the name of a tensor of the body in the graph that has the copies."""
        copied = split(tensor)[0] in self.names and tensor not in self._root.fed
        return f"{scope}/{tensor}" if copied else tensor

    def import_into(self, graph: Any, scope: str, library: Sequence[Any]) -> None:
        """Add the copies to the graph."""
        definition = graph_pb2.GraphDef(versions=graph.graph_def_versions)
        definition.library.function.extend(library)
        outside: dict[str, Any] = {}
        waits: dict[str, list[Any]] = {}
        copied = self.names.difference(self.grafted)
        for name in self.names:
            node = definition.node.add()
            node.CopyFrom(self._body.nodes[name])
            node.attr.pop("_class", None)
            share_by_name(node, name)
            for tensor in data_inputs(node):
                producer, index = split(tensor)
                if producer not in self.names or tensor in self._root.fed:
                    outside[tensor] = graph.get_operation_by_name(producer).outputs[index]
            if name not in copied:
                # It never runs, and what led through it would be no way once it is exchanged.
                set_inputs(node, data_inputs(node), set())
                continue
            controls = [*control_inputs(node), *self._before_originals(node)]
            outer = [control for control in controls if control not in copied]
            set_inputs(node, data_inputs(node), [c for c in controls if c in copied])
            if outer:
                waits[name] = [graph.get_operation_by_name(control) for control in outer]
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
                if graph.graph_def_versions != definition.versions:
                    notes_of(graph).versions = definition.versions, graph.graph_def_versions
                for name, operations in waits.items():
                    graph.get_operation_by_name(f"{scope}/{name}")._add_control_inputs(operations)
            finally:
                notes_of(graph).copies.append((first, last_id(graph)))
                if finalized:
                    graph.finalize()

    def _before_originals(self, node: Any) -> Iterator[str]:
        """List what runs ahead of originals that a copy reads, and which do not wait for it."""
        for tensor in data_inputs(node):
            producer = split(tensor)[0]
            if producer in self._holding and producer not in self.names:
                controls = control_inputs(self._body.nodes[producer])
                yield from (control for control in controls if control not in self._root.inputs)

    def _affected(self) -> set[str]:
        consumers: dict[str, list[str]] = collections.defaultdict(list)
        changed = []
        for name, node in self._body.nodes.items():
            for producer in self._producers(name, node):
                consumers[producer].append(name)
            if (
                name not in self._root.inputs
                or data_inputs(node) != self._root.inputs[name]
                or any(child.edited for child in self._root.children.get(name, ()))
            ):
                changed.append(name)
        affected: set[str] = set()
        while changed:
            name = changed.pop()
            if name not in affected:
                affected.add(name)
                changed += consumers[name]
                changed += self._loops.get(name, ())
                if name in self._holding:
                    # what the original takes is exchanged, so nobody else may take it
                    exchanged = [t for t, now in self._inputs(name) if t != now]
                    changed += [split(t)[0] for t in exchanged if t not in self._root.fed]
        return affected

    def _producers(self, name: str, node: Any) -> Iterator[str]:
        for tensor in data_inputs(node):
            if tensor not in self._root.fed:
                yield split(tensor)[0]
        if name not in self._holding or name in self._loops:
            yield from control_inputs(node)

    def _inputs(self, name: str) -> list[tuple[str, str]]:
        """List what a node took before anything was edited, and what it takes now."""
        return list(zip(self._root.inputs[name], data_inputs(self._body.nodes[name]), strict=True))

    def _share(self, name: str) -> None:
        """Have the state of a node shared.

        Raises:
            UnsupportedError: its handle cannot be had without running twice what has effects.
        """
        if name in self._loops:
            # an original that reads what a copied loop computes from its results is a cycle
            node = self._body.nodes[name]
            if is_reproducible(node):
                self.alone.append(name)
            elif not (
                draws_random_numbers(node.op)
                or has_name_of_its_own(node)
                or is_kept_by_node_name(node)
            ):
                raise UnsupportedError(
                    f"{name!r} ({node.op}) holds state of its own inside a loop in which tools "
                    "insert routines; create it outside of the loop, or give it a shared_name, or "
                    "exclude the operators of the loop by ops="
                )
            return
        inputs = self._inputs(name)
        taken = all(
            before == now if before in self._root.fed else self._exchanged.get(before, now) == now
            for before, now in inputs
        )
        if taken and not self._runs_twice(name):
            if name in self.names:
                self.grafted.append(name)
                self._exchanged.update(inputs)
        elif draws_random_numbers(self._body.nodes[name].op):
            if is_reproducible(self._body.nodes[name]):
                self.alone.append(name)
        else:
            raise UnsupportedError(
                f"{name!r} ({self._body.nodes[name].op}) holds state of its own, and waits for "
                "operators with effects at which tools insert routines; create it outside of "
                "tf.control_dependencies, or exclude those operators by ops="
            )

    def can_be_asked(self, call: str) -> bool:
        """Tell whether an original that calls functions may run parts of them beside its copy.

        Whether a branch is taken is then found out twice, and the session is asked once for names,
        with dead tensors in place of those that have values.
        """
        operation = self._root.operations[call]
        first = [tensor.op for tensor in operation.inputs[:1] if tensor.name not in self._root.fed]
        handles = [t.op for t in operation.inputs if t.dtype in (tf.resource, tf.variant)]
        asked = behind([*handles, *operation.control_inputs], self._root.fed)
        return (
            call not in self._loops
            and not self._have_effects([*first, *operation.control_inputs])
            and not any(o.op_def.is_stateful and not keeps_state(o.type) for o in asked)
        )

    def _runs_twice(self, name: str) -> bool:
        """Tell whether an original would run what has effects, which a copy runs too."""
        return self._have_effects(self._root.operations[name].control_inputs)

    def _have_effects(self, operations: Sequence[Any]) -> bool:
        waited_for = behind(operations, self._root.fed)
        again = [o for o in waited_for if o.name in self.names and o.name not in self._holding]
        return any(o.op_def.is_stateful or o.name in self._loops for o in again)

    def _nodes_of_loops(self) -> dict[str, list[str]]:
        """Map each node in a loop of version 1 to all of that loop, which is copied as a whole."""
        members: dict[Any, list[str]] = collections.defaultdict(list)
        for name in self._root.operations.keys() & self._body.nodes.keys():
            operation = self._root.operations[name]
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


def leaving_out_copies(as_graph_def: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Graph.as_graph_def`` to export what the program has built of a graph."""

    @functools.wraps(as_graph_def)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        definition = as_graph_def(self, *args, **kwargs)
        notes = notes_of(self)
        if not notes.copies:
            return definition
        nodes = [node for node in definition.node if not node.name.startswith(SCOPE)]
        functions = [f for f in definition.library.function if "amanda_" not in f.signature.name]
        definition.ClearField("node")
        definition.node.extend(nodes)
        definition.ClearField("library")
        if functions:
            definition.library.function.extend(functions)
        if notes.versions is not None and definition.versions == notes.versions[1]:
            definition.versions.CopyFrom(notes.versions[0])
        return definition

    return wrapped


def behind(operations: Sequence[Any], fed: frozenset[str]) -> set[Any]:
    """Return the operators that run when some are asked for."""
    found: set[Any] = set()
    waiting = list(operations)
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting += (tensor.op for tensor in operation.inputs if tensor.name not in fed)
            waiting += operation.control_inputs
    return found
