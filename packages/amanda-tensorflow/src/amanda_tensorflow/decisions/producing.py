"""This finds in a graph what makes the inputs of operators, across what no tool looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_tensorflow.graph.body import split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amanda import Tool
    from amanda.driving import Plan

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.operators import TensorFlowOperator

# Nodes each of whose outputs is its input at the same position.
_ALIKE = frozenset(["IdentityN"])
# Nodes that give their first input, or one of two like it; what else they take says when, or which.
_FIRST_OF = frozenset(["Switch", "RefSwitch", "Enter", "RefEnter", "Exit", "RefExit"])
_LOOPS = frozenset(["While", "StatelessWhile"])


class Producing:
    """This knows the operators that tools look at, and what they take, in all frames of a call."""

    def __init__(self) -> None:
        self._taken: list[tuple[Frame, Plan, Sequence[str]]] = []
        self._makers: dict[tuple[Frame, str], list[tuple[TensorFlowOperator, Plan]]] = {}

    def met(
        self,
        frame: Frame,
        node: str,
        operator: TensorFlowOperator,
        plan: Plan,
        inputs: Sequence[str],
    ) -> None:
        """Note an operator that was decided about.

        Args:
            frame: where it is.
            node: the node that gives its result.
            operator: the operator.
            plan: what was decided.
            inputs: the tensors of the frame that it takes.
        """
        if plan.producers:
            self._taken.append((frame, plan, inputs))
            self._makers.setdefault((frame, node), []).append((operator, plan))

    def tell(self) -> None:
        """Tell the tools what makes the inputs of all that they look at."""
        for frame, plan, inputs in self._taken:
            for tool, producers in plan.producers.items():
                for index, tensor in enumerate(inputs):
                    for operator, output in self._producers(frame, tensor, tool):
                        producers[index].add(operator, output)

    def _producers(
        self, frame: Frame, tensor: str, tool: Tool
    ) -> Iterator[tuple[TensorFlowOperator, int]]:
        """List the outputs, of operators that a tool looks at, that a tensor of a frame is."""
        waiting, seen = [(frame, tensor)], set()
        while waiting:
            place = waiting.pop(0)
            if place in seen:
                continue
            seen.add(place)
            frame, tensor = place
            node, output = split(tensor)
            makers = [
                o for o, plan in self._makers.get((frame, node), ()) if tool in plan.producers
            ]
            if makers:
                yield makers[-1], output  # a composite comes after the operator of its result
            elif tensor not in frame.fed:
                waiting += _behind(frame, tensor)


def _behind(frame: Frame, tensor: str) -> Iterator[tuple[Frame, str]]:
    """List what a tensor is, or may be, if nothing that a tool looks at makes it."""
    argument = frame.body.argument(tensor)
    if argument is not None:
        if frame.parent is None:
            return
        yield frame.parent, frame.caller_tensor(argument)
        if frame.attr in ("cond", "body"):
            body = frame.parent.children[frame.call][-1]
            yield body, body.outputs[argument]
        return
    node, output = split(tensor)
    if node not in frame.inputs or node in frame.gradients.nodes:
        return
    op, inputs = frame.body.nodes[node].op, frame.inputs[node]
    if node in frame.children:
        for child in frame.children[node][-1:] if op in _LOOPS else frame.children[node]:
            yield child, child.outputs[output]
        if op in _LOOPS:
            yield frame, inputs[output]
    elif op in _ALIKE:
        yield frame, inputs[output]
    else:
        yield from ((frame, taken) for taken in (inputs[:1] if op in _FIRST_OF else inputs))
