"""The calls of layers in a frame are found here: their nodes, and where tensors go in and out.

Calls lie within each other. A node is on the *path* of the calls around it; a tensor that one reads
may leave some calls and enter others on its way there.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from amanda_tensorflow.graph.operators import operators_of
from amanda_tensorflow.notes import notes_of
from amanda_tensorflow.notes.name_scopes import declared_scope, within

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from amanda import Operator

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.notes.layers import LayerCall

Path = tuple[int, ...]
"""Numbers of calls, outermost first."""


class LayerAnchor(NamedTuple):
    """This anchor says that something is inserted at a call of a layer, by its number."""

    layer: int


class LayerGradient(NamedTuple):
    """This anchor is what computes the gradient of a call of a layer in one frame.

    Attributes:
        layer: number of the call.
        turn: which time it is computed.
        outputs: for each output the number of the gradient call that gives it on, and at which
            position it comes in; None where none flows.
        parts: for each output what its gradient is the sum of; nothing where it is all that
            comes in there.
        uses: for each input, numbers of the calls that compute a part of its gradient, and at which
            positions they return it.
    """

    layer: int
    turn: int
    outputs: tuple[tuple[int, int] | None, ...]
    parts: tuple[tuple[str, ...], ...]
    uses: tuple[tuple[tuple[int, int], ...], ...]

    def calls(self) -> set[int]:
        """Return the numbers of the gradient calls."""
        ends = {place[0] for place in self.outputs if place is not None}
        return ends | {number for uses in self.uses for number, _ in uses}


@dataclass(slots=True, eq=False)
class Layer:
    """This is one call of a layer in one frame.

    Attributes:
        number: which call of the graph it is.
        call: what was noted of it.
        path: the calls around it.
        nodes: the nodes that were made for it, in order.
        inputs, outputs: names of the tensors of the graph that go in and out, as far as these are
            in the graph.
        input_names, output_names: where each of them is in what the layer takes and gives.
        own: for each output, whether who reads it has it from this call.
        mixed: whether nodes of another call, that is not in it, were made meanwhile.
    """

    number: int
    call: LayerCall
    path: Path
    nodes: list[str]
    inputs: list[str]
    outputs: list[str]
    input_names: list[str]
    output_names: list[str]
    own: list[bool]
    mixed: bool = False


class Layers:
    """These are the calls of layers in a frame.

    Attributes:
        calls: all of them that were noted, by their numbers, outermost and earlier ones first.
    """

    def __init__(self, frame: Frame) -> None:
        self._inputs = frame.inputs
        self.calls: dict[int, Layer] = {}
        self._paths: dict[str, Path] = {}
        noted = notes_of(frame.graph).layers
        by_id = sorted((operation._id, name) for name, operation in frame.operations.items())
        ids = [id for id, _ in by_id]
        captured = _captured(frame.graph) if noted else {}
        around: list[Layer] = []
        latest: Layer | None = None
        for number, call in sorted(enumerate(noted), key=lambda noted: noted[1].began):
            while around and around[-1].number < number:  # it ended before this one does
                ended = around.pop()
                if latest is None or latest.call.made[1] < ended.call.made[1]:
                    latest = ended
            first, last = (bisect.bisect_right(ids, id) for id in call.made)
            path = tuple(layer.number for layer in around)
            layer = _layer(number, call, path, [n for _, n in by_id[first:last]], captured)
            if latest is not None and call.made[0] < latest.call.made[1]:
                layer.mixed = latest.mixed = True
            around.append(layer)
            self.calls[number] = layer
            self._paths.update(dict.fromkeys(layer.nodes, (*path, number)))

    def path(self, node: str) -> Path:
        """Return the calls that a node is in."""
        return self._paths.get(node, ())

    def readers(self, layer: Layer, tensor: str) -> Iterator[tuple[str, int]]:
        """List the nodes of a call that read a tensor of the frame, and at which positions."""
        for node in layer.nodes:
            for position, read in enumerate(self._inputs[node]):
                if read == tensor:
                    yield node, position


def _layer(
    number: int,
    call: LayerCall,
    path: Path,
    nodes: list[str],
    captured: Mapping[tuple[str, int], str],
) -> Layer:
    inputs = [
        (name, found)
        for name, place in call.inputs
        if (found := place if isinstance(place, str) else captured.get(place)) is not None
    ]
    return Layer(
        number,
        call,
        path,
        nodes,
        [tensor for _, tensor in inputs],
        [tensor for _, tensor in call.outputs],
        [name for name, _ in inputs],
        [name for name, _ in call.outputs],
        call.told_apart,
    )


def _captured(graph: Any) -> dict[tuple[str, int], str]:
    """Map what a graph has captured of others, by name and the number of the other graph."""
    return {
        (outer.name, notes_of(outer.graph).number): inner.name
        for outer, inner in getattr(graph, "captures", ())
        if not hasattr(outer, "numpy")
    }


def tensors(frame: Frame, names: Sequence[str]) -> list[Any]:
    """List tensors of a frame's graph by their names."""
    return [frame.graph.get_tensor_by_name(name) for name in names]


def scope_of(graph: Any, around: str, call: LayerCall) -> str:
    """Return the path of a layer, with which the scopes of operators in it begin.

    Args:
        graph: where it is called.
        around: the scope in which the function is called that the graph is of.
        call: the call.
    """
    scope = within(around, declared_scope(graph, call.outer))
    return f"{scope}/{call.name}" if scope else call.name


def layers_around(frame: Frame, operator: Operator) -> list[tuple[str, LayerCall]]:
    """List the calls of layers around an operator, outermost first, with their paths.

    Args:
        frame: where the operator is.
        operator: the operator, or a layer.
    """
    known = operators_of(frame.graph)
    if operator.is_module:
        return []
    name = operator.name  # which is that in the graph where it was met first
    if (here := known.get(name)) is None or here.name != name:
        name = next((name for name, other in known.items() if other.name == operator.name), "")
    node = frame.node(name) or ""
    found: list[tuple[str, LayerCall]] = []
    at: Frame | None = frame
    while at is not None:
        if notes_of(at.graph).layers:
            calls = [at.layers.calls[number].call for number in at.layers.path(node)]
            found = [(scope_of(at.graph, at.scope, call), call) for call in calls] + found
        node, at = at.call, at.parent
    return found
