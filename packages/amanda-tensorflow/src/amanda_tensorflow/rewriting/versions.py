"""Versions of a tensor are brought to where gradients need them.

The gradient of an operator may sit in another frame than the operator: in the backward function
of a pair, or in the backward loop of a loop. The tensors it takes have come there by arguments,
results, lists that a loop fills, or optionals that a branch returns, in the version that everybody
sees (S3: the substituted outputs). When the gradient needs another one, the way is followed back
to the operator, and the other version is sent along the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from amanda_tensorflow._internals import types_pb2
from amanda_tensorflow.graph.body import split
from amanda_tensorflow.notes import notes_of
from amanda_tensorflow.rewriting.again import name_again, run_again
from amanda_tensorflow.rewriting.stacks import unstacked
from amanda_tensorflow.rewriting.turns import holds_list, listed, taken, unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import tensorflow as tf
    from amanda.driving import Ask

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.notes import GradientCall
    from amanda_tensorflow.rewriting.edits import Edits


class Wanted(NamedTuple):
    """Which version of a tensor is wanted: the one that the gradient of an operator reads.

    Attributes:
        graph: number of the operator's graph.
        operator: its name there.
        again: for an operator that takes the tensor several times, which time, from 0.
        loops: how many loops around the operator the tensor comes from outside of, that do not
            change it: wanted is a list of the versions of all turns, or of such lists.
        ask: for a routine rather than the gradient: what it asks for of the operator. It travels
            the way of any tensor that comes from where the operator is.
        layer: the number of the layer that it asks that of, which the operator is in.
    """

    graph: int
    operator: str
    again: int = 0
    loops: int = 0
    ask: Ask | None = None
    layer: int | None = None


def source_of(frame: Frame, tensor: str) -> str:
    """What a tensor is a copy of, before anything is edited."""
    name = split(tensor)[0]
    while name in frame.inputs and frame.body.nodes[name].op == "Identity":
        tensor = frame.inputs[name][0]
        name = split(tensor)[0]
    return tensor


class Versions:
    """Finds and brings versions of tensors.

    Args:
        edits: what is inserted into each frame.
        root: the outermost frame.
        stashed: another version of an argument of the outermost frame, if the caller has it.
    """

    def __init__(
        self,
        edits: Mapping[Frame, Edits],
        root: Frame,
        stashed: Callable[[int, Wanted], str | None],
    ) -> None:
        self._edits = edits
        self._root = root
        self._stashed = stashed
        self._found: dict[tuple[Frame, str, Wanted], str | None] = {}

    def of_call(self, frame: Frame, reader: str, tensor: str, call: GradientCall) -> str | None:
        """What the gradient of an operator reads for a tensor; None for what everybody reads."""
        graph = call.forward_graph()
        if graph is None:
            return None
        producer = frame.operations.get(split(tensor)[0])
        if producer is not None and producer.name in call.repeated:
            return None  # the copy has been given the version that is wanted
        again = call.repeated.get(frame.operations[reader].name, 0)
        return self.find(frame, tensor, Wanted(notes_of(graph).number, call.forward, again))

    def find(self, frame: Frame, tensor: str, operator: Wanted) -> str | None:
        """The version of a tensor that an operator's own gradient needs.

        Returns:
            A tensor of this frame; None for the one that everybody reads.
        """
        key = (frame, tensor, operator)
        if key not in self._found:
            self._found[key] = None  # a way that leads in a circle leads nowhere
            self._found[key] = self._find(frame, tensor, operator)
        return self._found[key]

    def asked(self, frame: Frame, wanted: Wanted, dtype: int, in_gradient: bool) -> str | None:
        """What a routine asks for of a forward operator, as a tensor of this frame.

        Args:
            frame: where it asks.
            wanted: what it asks for.
            dtype: the data type of that; on the way it may be in a list or optional.
            in_gradient: whether it runs on a gradient.

        Returns:
            None if nothing that comes from there gets here.
        """
        node = frame.node(wanted.operator)
        if wanted.graph == notes_of(frame.graph).number and node is not None:
            # a loop of version 1 is in the same graph as that of its gradient, in another turn
            return None if in_gradient and frame.in_loop(node) else self._asked_at(frame, wanted)
        for carrier in _tensors(frame):
            found = self.find(frame, carrier, wanted)
            if found is not None and frame.body.dtype(found) == dtype:
                return found
        if frame.parent is None or frame.attr in ("cond", "body"):
            return None
        above = self.asked(frame.parent, wanted, dtype, in_gradient)
        return above and frame.pass_down(above)

    def _asked_at(self, frame: Frame, wanted: Wanted) -> str | None:
        """The same, in the frame that the operator is in."""
        node, ask, edits = frame.node(wanted.operator), wanted.ask, self._edits[frame]
        assert ask is not None
        if node is None or node not in frame.inputs:
            return None
        if wanted.layer is not None:
            return _asked_of_layer(edits, wanted.layer, ask)
        if ask.what == "outputs":
            return f"{node}:{ask.index}"
        if ask.what == "inputs":
            return str(edits.taken(node)[ask.index])
        return str(edits.current(frame.inputs[node][ask.index]))

    def operators(self, frame: Frame, tensor: str) -> Iterator[Wanted]:
        """The operators whose gradients need another version of a tensor of this frame."""
        yield from self._operators_here(frame, tensor)
        for body, argument, given in unchanged(frame):
            if self._same(frame, given, tensor):
                for wanted in self.operators(body, argument):
                    yield wanted._replace(loops=wanted.loops + 1)
        name, index = split(tensor)
        node_def = frame.body.nodes.get(name)
        if node_def is None:
            return
        if node_def.op in ("OptionalFromValue", "TensorListPushBack"):
            yield from self.operators(frame, frame.inputs[name][-1])
        for child in frame.children.get(name, ()):
            if child.attr != "cond" and index < len(child.outputs):
                loops = int(child.attr == "body" and child.keeps(index))
                for wanted in self.operators(child, child.outputs[index]):
                    yield wanted._replace(loops=wanted.loops + loops)

    def _operators_here(self, frame: Frame, tensor: str) -> Iterator[Wanted]:
        """Those of them that are in this frame."""
        edits, number = self._edits[frame], notes_of(frame.graph).number
        if tensor in edits.after:
            yield Wanted(number, frame.operations[split(tensor)[0]].name)
        for node in edits.inputs_of:
            times = sum(self._same(frame, t, tensor) for t in frame.inputs[node])
            for again in range(times):
                yield Wanted(number, frame.operations[node].name, again)
        for operator, nodes in frame.gradients.custom.items():
            if self._in_forward_part(frame, tensor, nodes):
                yield Wanted(number, operator)
        for call, gradient in edits.grad_outputs:
            for node in frame.gradients.nodes_of[call]:
                if gradient in frame.inputs[node] and self._same(frame, gradient, tensor):
                    yield Wanted(number, frame.operations[node].name)

    # Backward

    def _find(self, frame: Frame, tensor: str, operator: Wanted) -> str | None:
        return (
            self._at_operator(frame, tensor, operator)
            or self._in_turns(frame, tensor, operator)
            or self._along(frame, tensor, operator)
        )

    def _at_operator(self, frame: Frame, tensor: str, operator: Wanted) -> str | None:
        """What it is where the operator is."""
        if operator.graph != notes_of(frame.graph).number or operator.loops:
            return None
        if operator.ask is not None:  # a list or optional brings one with it in it
            in_other = frame.body.dtype(tensor) == types_pb2.DT_VARIANT
            return None if in_other else self._asked_at(frame, operator)
        node = frame.node(operator.operator)
        return node and self._at(frame, tensor, node, operator.again)

    def _in_turns(self, frame: Frame, tensor: str, operator: Wanted) -> str | None:
        """A list of what it is in each turn of a loop that does not change it."""
        for body, there, given in unchanged(frame) if operator.loops else ():
            if self._same(frame, given, tensor):
                inside = operator._replace(loops=operator.loops - 1)
                version = self.find(body, there, inside)
                if version:
                    argument = None if inside.loops else there
                    return listed(body, argument, version, name_again(body.call, operator))
        return None

    def _along(self, frame: Frame, tensor: str, operator: Wanted) -> str | None:
        """What it is where it comes from, brought here the same way."""
        number = frame.body.argument(tensor)
        if number is not None:
            return self._argument(frame, number, operator)
        name, index = split(tensor)
        op = frame.body.nodes[name].op if name in frame.body.nodes else ""
        if op == "Identity":
            return self.find(frame, frame.inputs[name][0], operator)
        if op == "TensorListPopBack" and index == 1:
            return self._popped(frame, name, operator)
        if op == "StackPopV2":
            return unstacked(frame, name, operator, self.find)
        if op in ("OptionalFromValue", "OptionalGetValue"):
            return self._optional(frame, name, operator)
        if op and name in frame.children:
            return self._result(frame, name, index, operator)
        return None

    def _optional(self, frame: Frame, name: str, operator: Wanted) -> str | None:
        """An optional that a branch returns, or what is in it."""
        value = self.find(frame, frame.inputs[name][0], operator)
        if value and not _fits(frame, frame.inputs[name][0], value, operator):
            return None
        again = value and run_again(frame, name, [value], operator)
        if again and operator.loops:
            holds_list(frame.body.nodes[split(again)[0]])
        return again

    def _at(self, frame: Frame, tensor: str, operator: str, again: int) -> str | None:
        """In the operator's own frame: one of its outputs, or what it takes for an input."""
        edits = self._edits[frame]
        if split(tensor)[0] == operator:
            return tensor if tensor in edits.after else None
        custom = frame.gradients.custom.get(frame.operations[operator].name)
        if custom is not None:
            return self._in_forward_part(frame, tensor, custom)
        if operator not in edits.inputs_of:
            return self._at_gradient(frame, tensor, operator)
        taken = [
            (original, str(substituted))
            for original, substituted in zip(
                frame.inputs[operator], edits.inputs_of[operator], strict=True
            )
            if self._same(frame, original, tensor)
        ]
        if again >= len(taken):
            return None
        original, substituted = taken[again]
        return None if substituted == edits.current(original) else substituted

    def _at_gradient(self, frame: Frame, tensor: str, node: str) -> str | None:
        """What a node that computes a gradient takes, for the gradient of that gradient."""
        call = frame.gradients.of_node.get(node)
        taken = next((t for t in frame.inputs[node] if self._same(frame, t, tensor)), None)
        if call is None or taken is None:
            return None
        came_in = self._edits[frame].grad_outputs.get((call, taken))
        return came_in or self.of_call(frame, node, taken, call)

    def _in_forward_part(self, frame: Frame, tensor: str, nodes: Sequence[str]) -> str | None:
        """For a custom gradient: what the nodes that it stands for take, or one of them gives.

        All that take a tensor take the same for it, see
        :mod:`amanda_tensorflow.decisions.custom_gradients`.
        """
        edits = self._edits[frame]
        if tensor in edits.after and split(tensor)[0] in nodes:
            return tensor
        for node in nodes:
            for original, substituted in zip(
                frame.inputs[node], edits.inputs_of.get(node, ()), strict=False
            ):
                if substituted != edits.current(original) and self._same(frame, original, tensor):
                    return str(substituted)
        return None

    def _same(self, frame: Frame, one: str, other: str) -> bool:
        return source_of(frame, one) == source_of(frame, other)

    def _argument(self, frame: Frame, argument: int, operator: Wanted) -> str | None:
        if frame.parent is None:
            return self._stashed(argument, operator)
        if not frame.keeps(argument):
            return None
        given = frame.caller_tensor(argument)
        above = self.find(frame.parent, given, operator)
        if above is not None:
            return frame.pass_down(above)
        if frame.attr != "body":
            return None
        turns = self.find(frame.parent, given, operator._replace(loops=operator.loops + 1))
        name = frame.body.arguments[argument][0]
        element = None if operator.loops else f"{name}:0"
        return turns and taken(frame, element, turns, name_again(name, operator))

    def _result(self, frame: Frame, call: str, index: int, operator: Wanted) -> str | None:
        for child in frame.children[call]:
            if child.attr == "cond" or index >= len(child.outputs):
                continue
            output = child.outputs[index]
            if child.attr != "body":
                version = self.find(child, output, operator)
                if version is not None:
                    return child.pass_up(version, output)
            elif child.keeps(index):
                return self.find(frame, frame.inputs[call][index], operator)
            else:
                return self._pushed(child, output, operator)
        return None

    def _pushed(self, body: Frame, output: str, operator: Wanted) -> str | None:
        """A list that a loop has filled, filled with the other version."""
        assert body.parent is not None
        push = split(output)[0]
        if push not in body.inputs or body.body.nodes[push].op != "TensorListPushBack":
            return None
        tensor_list, tensor = body.inputs[push]
        version = self.find(body, tensor, operator)
        argument = body.body.argument(tensor_list)
        if version is None or argument is None or not _fits(body, tensor, version, operator):
            return None
        if operator.loops:
            return listed(body, None, version, name_again(push, operator))

        def update(argument: str) -> str:
            return run_again(body, push, [argument, version], operator)

        return body.add_loop_variable(body.caller_tensor(argument), update)[1]

    def _popped(self, body: Frame, pop: str, operator: Wanted) -> str | None:
        """What a loop takes from a list, taken from one with the other version."""
        tensor_list = body.inputs[pop][0]
        argument = body.body.argument(tensor_list)
        if argument is None or body.parent is None or body.attr != "body":
            return None
        above = self.find(body.parent, body.caller_tensor(argument), operator)
        if above is None:
            return None
        if operator.loops:
            return taken(body, None, above, name_again(pop, operator))
        popped: list[str] = []

        def update(argument: str) -> str:
            again = run_again(body, pop, [argument, body.inputs[pop][1]], operator)
            popped.append(again)
            return again

        body.add_loop_variable(above, update)
        return f"{split(popped[0])[0]}:1"


def _asked_of_layer(edits: Edits, number: int, ask: Ask) -> str | None:
    """What a routine asks for of a layer, as a tensor of the frame that the layer is in."""
    layer = edits.frame.layers.calls[number]
    names = layer.outputs if ask.what == "outputs" else layer.inputs
    (tensor,) = edits.tensors([names[ask.index]])
    path = layer.path if ask.what == "given" else (*layer.path, number)
    return None if tensor is None else edits.seen(tensor, path)


def _tensors(frame: Frame) -> Iterable[str]:
    """The tensors of a frame before it was edited, those that calls return and nobody reads too."""
    given = [] if frame.definition is None else frame.definition.signature.input_arg
    tensors = [f"{argument.name}:0" for argument in given]
    tensors += [tensor for inputs in frame.inputs.values() for tensor in inputs]
    for call in frame.children:
        tensors += [f"{call}:{index}" for index in range(len(frame.operations[call].outputs))]
    return dict.fromkeys(tensors)


def _fits(frame: Frame, tensor: str, version: str, operator: Wanted) -> bool:
    """Whether what was made for a tensor, a list or optional, takes what comes in its place.

    A version always does. What is asked for may have another type or shape than what it comes with.
    """
    if operator.ask is None or operator.loops:
        return True
    if frame.body.dtype(tensor) != frame.body.dtype(version):
        return False
    known = [shape for t in (tensor, version) if (shape := _known_shape(frame, t)) is not None]
    return len(known) < 2 or bool(known[0].is_compatible_with(known[1]))


def _known_shape(frame: Frame, tensor: str) -> tf.TensorShape | None:
    """The shape of an argument, or of what an operator of the graph gives; None of what is new."""
    argument = frame.body.argument(tensor)
    if argument is not None:
        inputs = getattr(frame.graph, "inputs", ())
        return inputs[argument].shape if argument < len(inputs) else None
    name, index = split(tensor)
    operation = frame.operations.get(name)
    return None if operation is None else operation.outputs[index].shape
