"""A loop of version 1 hands tensors to the loop of its gradient by stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_tensorflow.graph.body import control_inputs, data_inputs, set_inputs, split
from amanda_tensorflow.rewriting.again import run_again

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.wanted import Wanted


def unstacked(
    frame: Frame, pop: str, wanted: Wanted, find: Callable[[Frame, str, Wanted], str | None]
) -> str | None:
    """Have a loop take from another stack, with the version that is wanted, what it took from one.

    Args:
        frame: where both loops are.
        pop: the node that takes it.
        wanted: which version.
        find: finds that version of what is pushed; None where there is no other.
    """
    stack = _source(frame, frame.inputs[pop][0])
    for push, inputs in frame.inputs.items():
        if frame.body.nodes[push].op != "StackPushV2" or _source(frame, inputs[0]) != stack:
            continue
        version = find(frame, inputs[1], wanted)
        if version is None:
            return None
        handles: dict[str, str] = {}
        handle = _copied(frame, inputs[0], wanted, handles)
        _wait_for_both(frame, push, split(run_again(frame, push, [handle, version], wanted))[0])
        handle = _copied(frame, frame.inputs[pop][0], wanted, handles)
        popped = run_again(frame, pop, [handle], wanted)
        _wait_for_both(frame, pop, split(popped)[0])
        return popped
    return None


def serves_several(frame: Frame, push: str) -> bool:
    """Tell whether a node pushes a tensor for several gradients, of which each may read another."""
    if frame.body.nodes[push].op != "StackPushV2":
        return False
    stack = _source(frame, frame.inputs[push][0])
    pops = {
        name
        for name, inputs in frame.inputs.items()
        if frame.body.nodes[name].op == "StackPopV2" and _source(frame, inputs[0]) == stack
    }
    calls = {
        frame.gradients.of_node.get(name)
        for name, inputs in frame.inputs.items()
        if any(split(tensor)[0] in pops for tensor in inputs)
    }
    return len(calls) > 1


def _source(frame: Frame, handle: str) -> str:
    """Find the node that makes a stack."""
    name = split(handle)[0]
    while frame.body.nodes[name].op in ("Enter", "Identity"):
        name = split(frame.inputs[name][0])[0]
    return name


def _copied(frame: Frame, handle: str, wanted: Wanted, copies: dict[str, str]) -> str:
    """Add a stack like another one, as it is seen inside a loop."""
    name = split(handle)[0]
    if name not in copies:
        inputs = frame.inputs[name]
        if frame.body.nodes[name].op in ("Enter", "Identity"):
            inputs = [_copied(frame, inputs[0], wanted, copies)]
        copies[name] = run_again(frame, name, inputs, wanted)
    return copies[name]


def _wait_for_both(frame: Frame, node: str, twin: str) -> None:
    """Have whoever waits for a push or a pop wait for its twin too."""
    for name in frame.inputs:
        waiting = frame.body.nodes[name]
        controls = control_inputs(waiting)
        if node in controls:
            set_inputs(waiting, data_inputs(waiting), [*controls, twin])
