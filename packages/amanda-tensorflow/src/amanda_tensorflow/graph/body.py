"""The body of a function, or what a session runs, is held as NodeDefs that can be edited.

A tensor is named as in a GraphDef, always with its index: ``node:0``; an argument is a tensor
``argument:0``.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from amanda_tensorflow._internals import function_pb2, node_def_pb2, op_def_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

REFERENCE = 100
"""The type of a reference to a tensor is the type of the tensor plus this (``types.proto``)."""


def split(tensor: str) -> tuple[str, int]:
    """Split the name of a tensor into the name of its node and the index of the output."""
    name, _, index = tensor.rpartition(":")
    return name, int(index)


def data_inputs(node: Any) -> list[str]:
    """List the tensors that a node of a GraphDef takes."""
    return [name if ":" in name else f"{name}:0" for name in node.input if not name.startswith("^")]


def control_inputs(node: Any) -> list[str]:
    """List the names of the nodes that must run before a node does."""
    return [name[1:] for name in node.input if name.startswith("^")]


def set_inputs(node: Any, data: Iterable[str], control: Iterable[str]) -> None:
    """Give a node other inputs; each control input once."""
    del node.input[:]
    node.input.extend(data)
    node.input.extend(f"^{name}" for name in dict.fromkeys(control))


class UnknownOpError(LookupError):
    """This is raised where a node's operator is not registered in this process."""


class Body:
    """A body holds NodeDefs by name, with the arguments that come in and the tensors that go out.

    Args:
        nodes, arguments, outputs, controls: see the attributes.
        signature_of: OpDef of a function that is called by its own name.
        dtype_of: data type of a tensor that no node here makes.

    Attributes:
        nodes: NodeDefs whose inputs are in the form of a GraphDef.
        arguments: name and data type of each argument.
        outputs: the tensors that are returned.
        controls: names of nodes that run whether or not their outputs are used.
        definition: the FunctionDef that it came from, None for a graph's own nodes.
    """

    def __init__(
        self,
        nodes: Mapping[str, Any],
        arguments: Sequence[tuple[str, int]] = (),
        outputs: Sequence[str] = (),
        controls: Sequence[str] = (),
        signature_of: Callable[[str], Any] | None = None,
        dtype_of: Callable[[str], int] | None = None,
    ) -> None:
        self.nodes = dict(nodes)
        self.arguments = list(arguments)
        self.outputs = list(outputs)
        self.controls = list(controls)
        self._argument_index = {name: i for i, (name, _) in enumerate(self.arguments)}
        self._signature_of = signature_of
        self._dtype_of = dtype_of
        self.definition: Any = None

    @classmethod
    def of_function(cls, definition: Any, signature_of: Callable[[str], Any] | None = None) -> Body:
        """Make the body of a FunctionDef.

        Args:
            definition: the FunctionDef; it is not changed.
            signature_of: OpDef of a function that is called by its own name.
        """
        arguments = [(a.name, a.type) for a in definition.signature.input_arg]
        body = cls({}, arguments, signature_of=signature_of)
        body.definition = definition
        for original in definition.node_def:
            node = node_def_pb2.NodeDef()
            node.CopyFrom(original)
            body.nodes[node.name] = node
        for node in body.nodes.values():
            inputs = [n if n.startswith("^") else body._flat(n) for n in node.input]
            del node.input[:]
            node.input.extend(inputs)
        body.outputs = [body._flat(definition.ret[o.name]) for o in definition.signature.output_arg]
        body.controls = list(definition.control_ret.values())
        return body

    def to_function(self, name: str, without_attrs: Iterable[str] = ()) -> Any:
        """Make a FunctionDef of that name, otherwise like the one it came from."""
        definition = function_pb2.FunctionDef()
        original = self.definition
        definition.signature.CopyFrom(original.signature)
        definition.signature.name = name
        del definition.signature.control_output[:]
        for key, value in original.attr.items():
            if key not in without_attrs:
                definition.attr[key].CopyFrom(value)
        for index, attrs in original.arg_attr.items():
            definition.arg_attr[index].CopyFrom(attrs)
        for index, unique_id in original.resource_arg_unique_id.items():
            definition.resource_arg_unique_id[index] = unique_id
        for argument, dtype in self.arguments[len(original.signature.input_arg) :]:
            definition.signature.input_arg.add(name=argument, type=dtype)
        taken = {o.name for o in original.signature.output_arg}
        for index, tensor in enumerate(self.outputs):
            if index >= len(original.signature.output_arg):
                output = f"amanda_output_{index}"
                assert output not in taken
                definition.signature.output_arg.add(name=output, type=self.dtype(tensor))
            output = definition.signature.output_arg[index].name
            definition.ret[output] = self._nested(tensor)
        for node in self.nodes.values():
            copy = definition.node_def.add()
            copy.CopyFrom(node)
            del copy.input[:]
            copy.input.extend(self._nested(n) for n in data_inputs(node))
            copy.input.extend(n for n in node.input if n.startswith("^"))
        for control in dict.fromkeys(self.controls):
            definition.control_ret[control] = control
            definition.signature.control_output.append(control)
        definition.signature.is_stateful = True
        return definition

    def part(self, names: Iterable[str], outputs: Sequence[str]) -> Body:
        """Make the body of a function of its own of some of the nodes, with the same arguments."""
        nodes = {name: self.nodes[name] for name in names}
        return Body(nodes, self.arguments, outputs, (), self._signature_of, self._dtype_of)

    # Looking

    def argument(self, tensor: str) -> int | None:
        """Return the index of the argument that a tensor is, None for the output of a node."""
        return self._argument_index.get(split(tensor)[0])

    def dtype(self, tensor: str) -> int:
        """Return the data type of a tensor, as in ``types.proto``."""
        name, index = split(tensor)
        if name in self._argument_index:
            return self.arguments[self._argument_index[name]][1]
        if name not in self.nodes and self._dtype_of is not None:
            return self._dtype_of(tensor)
        return self.dtypes(self.nodes[name])[index]

    def dtypes(self, node: Any) -> list[int]:
        """List the data types of all outputs of a node."""
        return [dtype for _, dtypes in self._output_args(node) for dtype in dtypes]

    def behind(self, names: Iterable[str]) -> set[str]:
        """Return the nodes that some nodes depend on, and those themselves."""
        needed: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in self.nodes and name not in needed:
                needed.add(name)
                node = self.nodes[name]
                waiting += control_inputs(node)
                waiting += [split(tensor)[0] for tensor in data_inputs(node)]
        return needed

    def running(self) -> set[str]:
        """Return the nodes that a result or an effect depends on; the others never run."""
        asked = [split(tensor)[0] for tensor in self.outputs] + self.controls
        asked += [name for name in self.nodes if self.is_stateful(name)]
        return self.behind(asked)

    def is_stateful(self, name: str) -> bool:
        """Tell whether a node has effects, or depends on the effects of others."""
        return bool(self._op_def(self.nodes[name]).is_stateful)

    # Editing

    def unused(self, name: str) -> str:
        """Return a name for a new node, with a number if another one has the name."""
        names = (f"{name}_{number}" if number else name for number in itertools.count())
        return next(name for name in names if name not in self.nodes)

    def add(
        self,
        name: str,
        op: str,
        inputs: Iterable[str],
        controls: Iterable[str] = (),
        device: str = "",
    ) -> Any:
        """Add a new node; attributes are the caller's to set."""
        assert name not in self.nodes, name
        node = node_def_pb2.NodeDef(name=name, op=op, device=device)
        set_inputs(node, inputs, controls)
        self.nodes[name] = node
        return node

    def add_argument(self, dtype: int) -> str:
        """Add a new last argument, and return it as a tensor."""
        name = f"amanda_argument_{len(self.arguments)}"
        self._argument_index[name] = len(self.arguments)
        self.arguments.append((name, dtype))
        return f"{name}:0"

    # Inside

    def _op_def(self, node: Any) -> Any:
        op_def = op_def_registry.get(node.op)
        if op_def is None and self._signature_of is not None:
            op_def = self._signature_of(node.op)
        if op_def is None:
            raise UnknownOpError(
                f"the operator {node.op!r} of node {node.name!r} is not registered"
            )
        return op_def

    def _output_args(self, node: Any) -> list[tuple[str, list[int]]]:
        op_def = self._op_def(node)
        found = []
        for arg in op_def.output_arg:
            if arg.type_list_attr:
                dtypes = list(_attr(node, op_def, arg.type_list_attr).list.type)
            else:
                dtype = arg.type or _attr(node, op_def, arg.type_attr).type
                if arg.is_ref:
                    dtype += REFERENCE
                count = _attr(node, op_def, arg.number_attr).i if arg.number_attr else 1
                dtypes = [dtype] * count
            found.append((arg.name, dtypes))
        return found

    def _flat(self, tensor: str) -> str:
        """Spell ``node:product:0``, as in a FunctionDef, as ``node:0``."""
        parts = tensor.split(":")
        if len(parts) == 1:
            return f"{tensor}:0"
        name, output, index = parts
        start = 0
        for arg, dtypes in self._output_args(self.nodes[name]):
            if arg == output:
                return f"{name}:{start + int(index)}"
            start += len(dtypes)
        raise LookupError(f"node {name!r} has no output {output!r}")

    def _nested(self, tensor: str) -> str:
        """Spell ``node:0`` as ``node:product:0``, as in a FunctionDef."""
        name, index = split(tensor)
        if name in self._argument_index:
            return name
        for arg, dtypes in self._output_args(self.nodes[name]):
            if index < len(dtypes):
                return f"{name}:{arg}:{index}"
            index -= len(dtypes)
        raise LookupError(f"node {name!r} has no output {tensor!r}")


def input_names(node: Any, op_def: Any) -> list[str]:
    """List the operator's names of the data inputs; elements of a list as ``values[0]``."""
    names: list[str] = []
    for arg in op_def.input_arg:
        if arg.number_attr:
            count = _attr(node, op_def, arg.number_attr).i
        elif arg.type_list_attr:
            count = len(_attr(node, op_def, arg.type_list_attr).list.type)
        else:
            names.append(arg.name)
            continue
        names += [f"{arg.name}[{i}]" for i in range(count)]
    return names


def _attr(node: Any, op_def: Any, name: str) -> Any:
    """Return an attribute, which a node may leave out if it has its default value."""
    if name in node.attr:
        return node.attr[name]
    return next(attr.default_value for attr in op_def.attr if attr.name == name)
