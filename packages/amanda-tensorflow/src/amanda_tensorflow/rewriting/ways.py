"""A version is sent along the way on which its tensor has come to where it is read.

Such ways are arguments and results of functions and branches, lists that a loop fills and another
one empties, stacks, and optionals that a branch returns.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from amanda_tensorflow.graph.body import split
from amanda_tensorflow.graph.called_functions import BRANCHES
from amanda_tensorflow.graph.wanted import given_to_branches, same
from amanda_tensorflow.rewriting.again import name_again, run_again
from amanda_tensorflow.rewriting.stacks import unstacked
from amanda_tensorflow.rewriting.turns import holds_list, listed, taken, unchanged

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.wanted import Wanted


class Ways(abc.ABC):
    """This brings versions along the ways of their tensors.

    Args:
        stashed: another version of an argument of the outermost frame, if the caller has it.
    """

    def __init__(self, stashed: Callable[[int, Wanted], str | None]) -> None:
        self._stashed = stashed

    @abc.abstractmethod
    def find(self, frame: Frame, tensor: str, operator: Wanted) -> str | None:
        """Find the version that an operator's own gradient needs, wherever that is made."""

    def _in_turns(self, frame: Frame, tensor: str, operator: Wanted) -> str | None:
        """Make a list of what a tensor is in each iteration of a loop that does not change it."""
        for body, there, given in unchanged(frame) if operator.loops else ():
            if same(frame, given, tensor):
                inside = operator._replace(loops=operator.loops - 1)
                version = self.find(body, there, inside)
                if version:
                    argument = None if inside.loops else there
                    return listed(body, argument, version, name_again(body.call, operator))
        return None

    def _in_branches(self, frame: Frame, tensor: str, operator: Wanted) -> str | None:
        """Have a branch return what one of its operators takes for a tensor given to the branch.

        The gradient's branch takes that tensor from outside, as the forward branch does, and not
        from what the forward branch returns.
        """
        for branch, there, given in given_to_branches(frame):
            if operator.graph in branch.graphs and same(frame, given, tensor):
                version = self.find(branch, there, operator)
                if version and _fits(branch, there, version, operator):
                    return branch.pass_up(version, version if operator.loops else there)
        return None

    def _along(self, frame: Frame, tensor: str, operator: Wanted) -> str | None:
        """Find the version where the tensor comes from, and bring it here along the same way."""
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
        """Make an optional, or take one apart, with the other version in it."""
        value = self.find(frame, frame.inputs[name][0], operator)
        if value and not _fits(frame, frame.inputs[name][0], value, operator):
            return None
        again = value and run_again(frame, name, [value], operator)
        if again and operator.loops:
            holds_list(frame.body.nodes[split(again)[0]])
        return again

    def _argument(self, frame: Frame, argument: int, operator: Wanted) -> str | None:
        if frame.parent is None:
            return self._stashed(argument, operator)
        beside = frame.parent.children[frame.call] if frame.attr in BRANCHES else ()
        if any(operator.graph in branch.graphs for branch in beside):
            return None  # what is made in a branch comes neither into it nor into another one
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
        """Have a loop fill a list with the other version."""
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
        """Have a loop take what it takes from a list from one with the other version."""
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


def _fits(frame: Frame, tensor: str, version: str, operator: Wanted) -> bool:
    """Tell whether what was made for a tensor, a list or optional, takes what comes in its place.

    A version always does. What is asked for may have another type or shape than what it comes with.
    """
    if operator.ask is None or operator.loops:
        return True
    if frame.body.dtype(tensor) != frame.body.dtype(version):
        return False
    known = [shape for t in (tensor, version) if (shape := frame.known_shape(t)) is not None]
    return len(known) < 2 or bool(known[0].is_compatible_with(known[1]))
