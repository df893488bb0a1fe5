"""Some nodes hold state inside the functions that a session's graph calls.

A session puts the bodies of branches into its graph before it runs it, and keeps the state of
their nodes under the names that they get there, with numbers in them. To learn those names the
session is asked to run a conditional whose inputs are dead, as those of a branch are that is not
taken: then nothing runs, and the session tells what it would have run.

What is inside a loop or a called function has no such name, or would make a cycle; what is created
there, and has no name of its own, cannot be shared.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf
from amanda import UnsupportedError

from amanda_tensorflow._internals import config_pb2, session_lib
from amanda_tensorflow.graph.body import data_inputs, split
from amanda_tensorflow.graph.state import (
    draws_random_numbers,
    has_name_of_its_own,
    is_reproducible,
    keeps_state,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.running.session_nodes import CopiedNodes

_NEVER = "amanda/never"


class Held(NamedTuple):
    """This is a node that holds state, in a function that is called from the outermost frame.

    Attributes:
        calls: the node that calls, in each frame from the outermost one down to where it is.
        pattern: what its name is in the session's graph, below that of the outermost call.
        name: the node.
        before: what it took before anything was edited; None for an argument of the function.
        now: what it takes; None for an argument of the function.
        outputs: how many tensors it makes.
        reproducible: whether it draws the same random numbers in every process.
        reachable: whether the original can run in its place.
        op: its type, where a copy of it would have another state, None for a random stream.
    """

    calls: tuple[str, ...]
    pattern: str
    name: str
    before: tuple[str | None, ...]
    now: tuple[str | None, ...]
    outputs: int
    reproducible: bool
    reachable: bool
    op: str | None

    @property
    def path(self) -> str:
        """Tell where the node is, for messages."""
        return "/".join([*self.calls, self.name])


class Below:
    """This finds the nodes that hold state below the copied nodes of a graph.

    Attributes:
        held: those whose originals can run.
        alone: the seeded random operators whose copies run, so that their streams begin anew.

    Raises:
        UnsupportedError: a copy would create what it does not share with the original.
    """

    def __init__(self, root: Frame, copies: CopiedNodes) -> None:
        self._root = root
        self.held: list[Held] = []
        self.alone: list[str] = []
        for call, frames in root.children.items():
            if call in copies.names:
                can_run = copies.can_be_asked(call)
                for held in (one for frame in frames for one in _held_in(frame, can_run)):
                    if held.reachable:
                        self.held.append(held)
                    elif held.op is not None:
                        raise UnsupportedError(
                            f"{held.path!r} ({held.op}) holds state of its own inside a function "
                            "in which tools insert routines, or which waits for them; create it "
                            "outside of the function, or give it a shared_name, or exclude those "
                            "operators by ops="
                        )
                    elif held.reproducible:
                        self.alone.append(held.path)

    def add_dead_tensors(self) -> None:
        """Add nodes to the outermost frame that make tensors which are never there."""
        body = self._root.body
        calls = {one.calls[0] for one in self.held}
        dtypes = {body.dtype(t) for call in calls for t in data_inputs(body.nodes[call])}
        for dtype in dtypes.intersection(map(_number, _FED)):
            kind = tf.as_dtype(dtype).name
            if _NEVER not in body.nodes:
                node = body.add(_NEVER, "Placeholder", ())
                node.attr["dtype"].type = _number(tf.bool)
                node.attr["shape"].shape.SetInParent()
            node = body.add(f"{_NEVER}_{kind}/value", "Placeholder", ())
            node.attr["dtype"].type = dtype
            node.attr["shape"].shape.SetInParent()
            inputs = [f"{_NEVER}_{kind}/value:0", f"{_NEVER}:0"]
            node = body.add(f"{_NEVER}_{kind}", "Switch", inputs)
            node.attr["T"].type = dtype

    def connections(self, session: Any, scope: str) -> list[tuple[str, str]]:
        """List what a session is to connect so that the originals run: from, and to."""
        taken: list[tuple[str, str]] = []
        made: list[tuple[str, str]] = []
        known: dict[str, dict[str, list[str]]] = {}
        for one in list(self.held):
            found = []
            for call in (one.calls[0], f"{scope}/{one.calls[0]}"):
                if call not in known:
                    known[call] = self._names(session, scope, call)
                found.append(_find(known[call], call, one))
            original, copy = found
            if original is None or copy is None:
                raise LookupError(one.path)
            for index, (before, now) in enumerate(zip(one.before, one.now, strict=True)):
                target = _place(original, one, before, known[one.calls[0]], index)
                source = _place(copy, one, now, known[call], index)
                taken.append((source, target))
            made += [(f"{original}:{i}", f"{copy}:{i}") for i in range(one.outputs)]
        return taken + made

    def give_up(self) -> list[str]:
        """Let the copies run after all, and list the seeded random operators among them."""
        given_up, self.held = self.held, []
        return [one.path for one in given_up if one.reproducible]

    def _names(self, session: Any, scope: str, call: str) -> dict[str, list[str]]:
        """Map the nodes that a session has for a conditional to what each takes."""
        inputs = {t.name: t.dtype for t in session.graph.get_operation_by_name(call).inputs}
        options = config_pb2.CallableOptions(target=[call])
        options.run_options.output_partition_graphs = True
        values = {f"{scope}/{_NEVER}:0": np.array(False)}
        for tensor, kind in inputs.items():
            if kind in _FED:
                dead = f"{scope}/{_NEVER}_{kind.name}"
                value = b"" if kind == tf.string else 0
                values[f"{dead}/value:0"] = np.array(value, kind.as_numpy_dtype)
                options.tensor_connection.add(from_tensor=f"{dead}:1", to_tensor=tensor)
        options.feed.extend(values)
        metadata = config_pb2.RunMetadata()
        session._extend_graph()
        run = session_lib.BaseSession._Callable(session, options)
        run(*values.values(), run_metadata=metadata)
        return {
            node.name: data_inputs(node) for part in metadata.partition_graphs for node in part.node
        }


_FED = (
    *(tf.bool, tf.string, tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64),
    *(tf.complex128, tf.int8, tf.int16, tf.int32, tf.int64),
    *(tf.uint8, tf.uint16, tf.uint32, tf.uint64),
)


def _number(dtype: Any) -> int:
    return int(dtype.as_datatype_enum)


def _held_in(
    frame: Frame, reachable: bool, calls: tuple[str, ...] = (), pattern: str = ""
) -> Iterator[Held]:
    assert frame.parent is not None
    calls = (*calls, frame.call)
    reachable = reachable and frame.attr in ("then_branch", "else_branch", "branches")
    pattern += _below(frame)
    for name in frame.inputs:
        node = frame.body.nodes.get(name)
        if name in frame.running and node is not None and keeps_state(node.op):
            before = tuple(_inside(frame, tensor) for tensor in frame.inputs[name])
            yield Held(
                calls,
                pattern,
                name,
                before,
                tuple(_inside(frame, tensor) for tensor in data_inputs(node)),
                len(frame.body.dtypes(node)),
                is_reproducible(node),
                reachable and bool(before) and not frame.operations[name].control_inputs,
                None if draws_random_numbers(node.op) or has_name_of_its_own(node) else node.op,
            )
    for call, children in frame.children.items():
        for child in children:
            yield from _held_in(child, reachable, calls, f"{pattern}{re.escape(call)}")


def _below(frame: Frame) -> str:
    """Return what the names of the nodes of a branch begin with, after that of the conditional."""
    assert frame.parent is not None
    place = [child is frame for child in frame.parent.children[frame.call]].index(True)
    branch = f"branch{place}" if frame.attr == "branches" else frame.attr.removesuffix("_branch")
    return rf"/{branch}/_\d+/"


def _inside(frame: Frame, tensor: str) -> str | None:
    return tensor if frame.body.argument(tensor) is None else None


def _find(names: Iterable[str], call: str, held: Held) -> str | None:
    """Find the name that a node has in the session's graph."""
    pattern = re.compile(f"{re.escape(call)}{held.pattern}{re.escape(held.name)}")
    found = [name for name in names if pattern.fullmatch(name)]
    return found[0] if len(found) == 1 else None


def _place(
    name: str, held: Held, tensor: str | None, names: dict[str, list[str]], index: int
) -> str:
    """Return the name in the session's graph of what a node takes."""
    if tensor is None:
        return names[name][index]
    return name.removesuffix(held.name) + ":".join(map(str, split(tensor)))
