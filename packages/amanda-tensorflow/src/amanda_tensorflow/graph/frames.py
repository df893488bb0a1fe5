"""A frame is a function body at one place that calls it; a call and all it calls are a tree.

A function that is called from two places has two frames, so that each can be edited on its own
and a value's way from frame to frame is never ambiguous. New values travel by
:meth:`Frame.pass_down` and :meth:`Frame.pass_up`, which add arguments and results along the way.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from amanda_tensorflow._internals import control_flow_util
from amanda_tensorflow.graph.body import Body, control_inputs, data_inputs, set_inputs, split
from amanda_tensorflow.graph.called_functions import (
    FUNCTION_CALLS,
    STATEFUL,
    arguments_begin,
    definition_of,
    find_function,
    functions_of,
    graph_of,
    signatures,
)
from amanda_tensorflow.graph.gradients import Gradients
from amanda_tensorflow.graph.layers import Layers
from amanda_tensorflow.graph.node_types import STRUCTURE
from amanda_tensorflow.notes import notes_of
from amanda_tensorflow.notes.name_scopes import declared_scope, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import tensorflow as tf

    from amanda_tensorflow.graph.wanted import Wanted


class Frame:
    """A frame is one function body, as called from one place.

    Attributes:
        body: its nodes, to be edited.
        graph: the FuncGraph or Graph in which its operations can be looked up.
        parent: the frame of the caller, None for the outermost one.
        call: name of the calling node in it.
        attr: which of that node's functions this is.
        operations: the operation of the graph that each node is; it may have another name there.
        running: the nodes that are not pruned.
        inputs: the data inputs of each node before anything was edited.
        fed: tensors whose values come from outside, whatever the node that makes them does.
        children: frames of the functions that a node calls, by node.
        host: whether host routines run in it.
        ordered: whether anything in it has to keep the order of the program.
        edited: whether it is no longer what it was.
        handed: of an outermost frame, what routines on gradients that another function computes ask
            for of its operators, and of which data type that is.
    """

    def __init__(
        self,
        body: Body,
        graph: Any,
        function: Any = None,
        parent: Frame | None = None,
        call: str = "",
        attr: str = "",
        fed: Iterable[str] = (),
    ) -> None:
        self.body = body
        self.graph = graph
        self.fed = frozenset(fed)
        self.function = function
        self.definition = body.definition
        self.parent = parent
        self.call = call
        self.attr = attr
        self.inputs = {name: data_inputs(node) for name, node in body.nodes.items()}
        self.outputs = list(body.outputs)
        placeholders = getattr(graph, "inputs", ())
        self._arguments = {
            placeholder.name: f"{name}:0"
            for placeholder, (name, _) in zip(placeholders, body.arguments, strict=False)
        }
        self.operations = _operations_of(body, graph)
        self._nodes = {operation.name: name for name, operation in self.operations.items()}
        self.gradients = Gradients(graph, self.operations)
        self.running = self._running()
        self.children: dict[str, list[Frame]] = {}
        self.host = False
        self.ordered = False
        self.edited = False
        self.handed: dict[Wanted, int] = {}
        self._down: dict[str, str] = {}
        self._up: dict[str, str] = {}
        for name, node in body.nodes.items():
            frames = [
                self._child(name, function_name, attr) for attr, function_name in functions_of(node)
            ]
            if frames:
                self.children[name] = frames

    @classmethod
    def of_function(cls, function: Any) -> Frame:
        """Make the outermost frame of an AtomicFunction that is called."""
        graph = function.graph
        body = Body.of_function(function.definition, signatures(graph))
        return cls(body, graph, function)

    @classmethod
    def of_graph(cls, graph: Any) -> Frame:
        """Make an outermost frame of all of a graph, to look at."""
        nodes = {operation.name: operation.node_def for operation in graph.get_operations()}
        return cls(Body(nodes, signature_of=signatures(graph)), graph)

    def node(self, operation: str) -> str | None:
        """Return the node that an operation of the graph is; None if this frame has none of it."""
        return self._nodes.get(operation)

    def tensor(self, name: str) -> str:
        """Return the body's name for a tensor of the graph."""
        if name in self._arguments:
            return self._arguments[name]
        operation, index = split(name)
        return f"{self._nodes.get(operation, operation)}:{index}"

    def graph_tensor(self, tensor: str) -> Any:
        """Return the graph's tensor for one that the body had before anything was edited."""
        name, index = split(tensor)
        if (argument := self.body.argument(tensor)) is not None:
            return self.graph.inputs[argument]
        operation = self.operations.get(name) or self.graph.get_operation_by_name(name)
        return operation.outputs[index]

    @property
    def outermost(self) -> Frame:
        """Return the frame of what the program calls."""
        return self if self.parent is None else self.parent.outermost

    def computed(self, name: str | None) -> Any:
        """Return a tensor of the graph by its name; None for one that nothing here asks for."""
        if name is None:
            return None
        tensor = self.tensor(name)
        if self.body.argument(tensor) is None and split(tensor)[0] not in self.running:
            return None
        return self.graph.get_tensor_by_name(name)

    def walk(self) -> Iterator[Frame]:
        """List this frame and all frames below it."""
        yield self
        for frames in self.children.values():
            for frame in frames:
                yield from frame.walk()

    @functools.cached_property
    def graphs(self) -> frozenset[int]:
        """Return the numbers of the graphs of this frame and of all below it."""
        return frozenset(notes_of(frame.graph).number for frame in self.walk())

    def known_shape(self, tensor: str) -> tf.TensorShape | None:
        """Return the shape of an argument or of an operator's output; None for what is new."""
        argument = self.body.argument(tensor)
        if argument is not None:
            inputs = getattr(self.graph, "inputs", ())
            return inputs[argument].shape if argument < len(inputs) else None
        name, index = split(tensor)
        operation = self.operations.get(name)
        known = () if operation is None else operation.outputs
        return known[index].shape if index < len(known) else None

    def forward_nodes(self) -> Iterator[str]:
        """List the nodes that are operators of the model, in a stable order."""
        for name, node in self.body.nodes.items():
            if name not in self.gradients.nodes and node.op not in STRUCTURE:
                yield name

    def forward_operations(self) -> Iterator[tuple[str, str]]:
        """List the name in the graph and the type of each operator of the model."""
        for name in self.forward_nodes():
            yield self.operations[name].name, self.body.nodes[name].op

    def in_loop(self, name: str) -> bool:
        """Tell whether a node is in a loop of version 1."""
        within = self.operations[name]._get_control_flow_context()
        return control_flow_util.GetContainingWhileContext(within) is not None

    @functools.cached_property
    def layers(self) -> Layers:
        """Return the calls of layers, as they were before anything was edited."""
        return Layers(self)

    @property
    def scope(self) -> str:
        """Return the name scope of the call; nodes in loops and branches have it in their names."""
        if self.parent is None:
            return ""
        operation = self.parent.operations[self.call]
        if operation.type not in FUNCTION_CALLS:
            return self.parent.scope
        opened = declared_scope(self.parent.graph, operation.name.rpartition("/")[0])
        return within(self.parent.scope, opened)

    # Control and state

    def mark_edited(self) -> None:
        """Note that this frame, and so all its callers, are not what they were."""
        self.edited = True
        if self.parent is not None and not self.parent.edited:
            self.parent.mark_edited()

    def mark_ordered(self) -> None:
        """Note that what runs here, and so each call of it, has to keep the program's order."""
        self.ordered = True
        if self.parent is not None and not self.parent.ordered:
            self.parent.mark_ordered()

    def mark_host(self) -> None:
        """Note that Python runs in here, so XLA can compile neither this frame nor its callers."""
        self.host = True
        self.mark_edited()
        if self.parent is not None:
            node = self.parent.body.nodes[self.call]
            node.op = STATEFUL.get(node.op, node.op)
            if not self.parent.host:
                self.parent.mark_host()

    # Values from frame to frame

    def caller_tensor(self, argument: int) -> str:
        """Return the tensor in the parent that an argument was before anything was edited."""
        assert self.parent is not None
        own = arguments_begin(self.parent.body.nodes[self.call].op)
        return self.parent.inputs[self.call][argument + own]

    def keeps(self, argument: int) -> bool:
        """Tell whether an argument is the caller's, also when a loop runs the frame again."""
        if self.parent is None or self.attr not in ("cond", "body"):
            return True
        body = self.parent.children[self.call][-1]
        return body.body.argument(body.outputs[argument]) == argument

    def pass_down(self, tensor: str) -> str:
        """Pass a tensor of the parent to this frame, and return it as one of this frame."""
        assert self.parent is not None
        if tensor not in self._down:
            siblings = self.parent.children[self.call]
            dtype = self.parent.body.dtype(tensor)
            self.parent._append_input(self.call, tensor, dtype)
            for frame in siblings:
                frame.mark_edited()
                argument = frame.body.add_argument(dtype)
                frame._down[tensor] = argument
                if frame.attr == "body":
                    frame.body.outputs.append(argument)
            if siblings[-1].attr == "body":
                self.parent._append_output(self.call, dtype)
        return self._down[tensor]

    def pass_up(self, tensor: str, like: str) -> str:
        """Pass a tensor of this frame, which is no loop's, up, and return it as one of the parent.

        Args:
            tensor: the tensor.
            like: one that has the same type and shape, and was there before.
        """
        assert self.parent is not None
        if tensor not in self._up:
            dtype = self.body.dtype(tensor)
            for frame in self.parent.children[self.call]:
                frame.mark_edited()
                frame.body.outputs.append(
                    tensor if frame is self else frame._never_read(dtype, self, like)
                )
            self._up[tensor] = self.parent._append_output(self.call, dtype)
        return self._up[tensor]

    def add_loop_variable(self, initial: str, update: Callable[[str], str]) -> tuple[str, str]:
        """Add a variable to the loop whose body this frame is.

        Args:
            initial: its first value, a tensor of the parent.
            update: makes its next value from the present one, both tensors of this frame.

        Returns:
            The present value in this frame, and the last one in the parent.
        """
        assert self.parent is not None
        assert self.attr == "body"
        dtype = self.parent.body.dtype(initial)
        self.parent._append_input(self.call, initial, dtype)
        for frame in self.parent.children[self.call]:
            frame.mark_edited()
            argument = frame.body.add_argument(dtype)
        self.body.outputs.append(update(argument))
        return argument, self.parent._append_output(self.call, dtype)

    # Inside

    def _running(self) -> set[str]:
        if self.definition is None:
            return set(self.body.nodes)
        running = self.body.running()
        while True:
            # routines before an operator have a part in its gradient, even where it does not run
            missing = {
                node
                for name in running & self.gradients.of_node.keys()
                for call in [self.gradients.of_node[name]]
                if call.forward_graph() is self.graph
                and call.forward not in notes_of(self.graph).vectorized
                and (node := self.node(call.forward)) is not None
            }
            if missing <= running:
                return running
            running |= self.body.behind(missing)

    def _child(self, call: str, name: str, attr: str) -> Frame:
        function = find_function(self.graph, name)
        definition = function.definition if function else definition_of(self.graph, name)
        graph = getattr(function, "graph", None) or graph_of(self.graph, name, definition)
        body = Body.of_function(definition, signatures(graph))
        return Frame(body, graph, function, self, call, attr)

    def _append_input(self, name: str, tensor: str, dtype: int) -> None:
        node = self.body.nodes[name]
        set_inputs(node, [*data_inputs(node), tensor], control_inputs(node))
        if "While" in node.op:
            node.attr["T"].list.type.append(dtype)
            if "output_shapes" in node.attr and node.attr["output_shapes"].list.shape:
                node.attr["output_shapes"].list.shape.add(unknown_rank=True)
        else:
            node.attr["Tin"].list.type.append(dtype)

    def _append_output(self, name: str, dtype: int) -> str:
        node = self.body.nodes[name]
        if "While" not in node.op:
            node.attr["Tout"].list.type.append(dtype)
            if "output_shapes" in node.attr and node.attr["output_shapes"].list.shape:
                node.attr["output_shapes"].list.shape.add(unknown_rank=True)
        node.attr.pop("_output_shapes", None)
        return f"{name}:{len(self.body.dtypes(node)) - 1}"

    def _never_read(self, dtype: int, other: Frame, like: str) -> str:
        """Make what a branch returns in place of a tensor that only another branch has."""
        name = f"amanda/never_read_{len(self.body.outputs)}"
        operation = other.operations.get(split(like)[0])
        if operation is not None and operation.type == "OptionalFromValue":
            self.body.add(name, "OptionalNone", ())
        else:
            node = self.body.add(name, "FakeParam", ())
            node.attr["dtype"].type = dtype
            shape = other.known_shape(like)
            if shape is None:
                node.attr["shape"].shape.unknown_rank = True
            else:
                node.attr["shape"].shape.CopyFrom(shape.as_proto())
        return f"{name}:0"


def _operations_of(body: Body, graph: Any) -> dict[str, Any]:
    """Find the operation of a graph that each node of a body is.

    A function's nodes are renamed where their names are those of arguments, and the graph may have
    grown since, but their order is the same.
    """
    operations = graph.get_operations()
    by_name = {operation.name: operation for operation in operations}
    if body.definition is None:
        return {name: by_name[name] for name in body.nodes}
    inputs = {placeholder.op for placeholder in graph.inputs}
    in_order = [operation for operation in operations if operation not in inputs]
    found = {}
    for (name, node), operation in zip(body.nodes.items(), in_order, strict=False):
        found[name] = operation if operation.type == node.op else by_name[name]
    return found
