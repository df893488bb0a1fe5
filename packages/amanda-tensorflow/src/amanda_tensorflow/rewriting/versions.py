"""Versions of a tensor are brought to where gradients need them.

The gradient of an operator may sit in another frame than the operator: in the backward function
of a pair, or in the backward loop of a loop. The tensors it takes have come there by arguments,
results, lists that a loop fills, or optionals that a branch returns, in the version that everybody
sees (the substituted outputs, see ``docs/semantics.md#s3-gradients``). When the gradient needs
another one, the way is followed back to the operator, and the other version is sent along it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_tensorflow.graph.body import split
from amanda_tensorflow.graph.wanted import Wanted, given_to_branches, same
from amanda_tensorflow.notes import notes_of
from amanda_tensorflow.rewriting.at_operators import AtOperators
from amanda_tensorflow.rewriting.turns import unchanged
from amanda_tensorflow.rewriting.ways import Ways

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.notes import GradientCall
    from amanda_tensorflow.rewriting.edits import Edits


class Versions(Ways):
    """This finds versions of tensors, and brings them to where they are read.

    Args:
        edits: what is inserted into each frame.
        stashed: another version of an argument of the outermost frame, if the caller has it.
    """

    def __init__(
        self, edits: Mapping[Frame, Edits], stashed: Callable[[int, Wanted], str | None]
    ) -> None:
        super().__init__(stashed)
        self._at_operators = AtOperators(edits)
        self._found: dict[tuple[Frame, str, Wanted], str | None] = {}

    def of_call(self, frame: Frame, reader: str, tensor: str, call: GradientCall) -> str | None:
        """Find what an operator's gradient reads for a tensor; None for what everybody reads."""
        graph = call.forward_graph()
        if graph is None:
            return None
        producer = frame.operations.get(split(tensor)[0])
        if producer is not None and producer.name in call.repeated:
            return None  # the copy has been given the version that is wanted
        again = call.repeated.get(frame.operations[reader].name, 0)
        return self.find(frame, tensor, Wanted(notes_of(graph).number, call.forward, again))

    def find(self, frame: Frame, tensor: str, operator: Wanted) -> str | None:
        """Find the version of a tensor that an operator's own gradient needs.

        Returns:
            A tensor of this frame; None for the one that everybody reads.
        """
        key = (frame, tensor, operator)
        if key not in self._found:
            self._found[key] = None  # a way that leads in a circle leads nowhere
            self._found[key] = self._find(frame, tensor, operator)
        return self._found[key]

    def asked(self, frame: Frame, wanted: Wanted, dtype: int, in_gradient: bool) -> str | None:
        """Find what a routine asks for of a forward operator, as a tensor of this frame.

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
            if in_gradient and frame.in_loop(node):
                return None  # a v1 loop is in its gradient's graph, in another iteration
            return self._at_operators.asked(frame, wanted)
        for carrier in _tensors(frame):
            found = self.find(frame, carrier, wanted)
            if found is not None and frame.body.dtype(found) == dtype:
                return found
        if frame.parent is None or frame.attr in ("cond", "body"):
            return None
        above = self.asked(frame.parent, wanted, dtype, in_gradient)
        return above and frame.pass_down(above)

    def operators(self, frame: Frame, tensor: str) -> Iterator[Wanted]:
        """List operators whose gradients need another version of a tensor of this frame."""
        yield from self._at_operators.operators(frame, tensor, self.of_call)
        yield from self._inside(frame, tensor)
        yield from self._behind(frame, tensor)

    def _inside(self, frame: Frame, tensor: str) -> Iterator[Wanted]:
        """List those in loops and branches that are given a tensor, and leave it as it is."""
        for body, argument, given in unchanged(frame):
            if same(frame, given, tensor):
                for wanted in self.operators(body, argument):
                    yield wanted._replace(loops=wanted.loops + 1)
        for branch, argument, given in given_to_branches(frame):
            if same(frame, given, tensor):
                yield from self.operators(branch, argument)

    def _behind(self, frame: Frame, tensor: str) -> Iterator[Wanted]:
        """List those that made what a tensor, a list, an optional or the result of a call, has."""
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

    def _find(self, frame: Frame, tensor: str, operator: Wanted) -> str | None:
        return (
            self._at_operators.version(frame, tensor, operator, self.of_call)
            or self._in_turns(frame, tensor, operator)
            or self._in_branches(frame, tensor, operator)
            or self._along(frame, tensor, operator)
        )


def _tensors(frame: Frame) -> Iterable[str]:
    """List the tensors of a frame before it was edited, also results of calls that nobody reads."""
    given = [] if frame.definition is None else frame.definition.signature.input_arg
    tensors = [f"{argument.name}:0" for argument in given]
    tensors += [tensor for inputs in frame.inputs.values() for tensor in inputs]
    for call in frame.children:
        tensors += [f"{call}:{index}" for index in range(len(frame.operations[call].outputs))]
    return dict.fromkeys(tensors)
