"""Edits hold what is inserted into one frame, and what its tensors are after that."""

from __future__ import annotations

import collections
import heapq
from typing import TYPE_CHECKING, Any

from amanda.driving import Point

from amanda_tensorflow.composites import Group
from amanda_tensorflow.graph.body import control_inputs, data_inputs, set_inputs, split
from amanda_tensorflow.graph.layers import LayerAnchor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.layers import Layer, Path
    from amanda_tensorflow.notes import GradientCall
    from amanda_tensorflow.routines.stages import Stage

    Place = tuple[int, int]
    """Where a node runs: of a composite, where that gives its result, and then where it is."""

_COLLECTIVE = ("Collective", "Nccl")
_MAYBE_DEAD = frozenset(["Switch", "RefSwitch", "Enter", "RefEnter"])

# A node that calls functions runs after the routines before it, and before all others there.
_CALL = 1


def _runnable(frame: Frame) -> list[str]:
    """List the nodes of a frame in an order in which they can run, else in that of the program."""
    order: dict[str, None] = {}
    waiting = list(reversed(frame.inputs))
    while waiting:
        name = waiting[-1]
        controls = [frame.node(o.name) for o in frame.operations[name].control_inputs]
        before = [*(split(tensor)[0] for tensor in frame.inputs[name]), *controls]
        missing = [n for n in before if n in frame.inputs and n not in order]
        if missing and name not in order:
            waiting += [n for n in missing if n is not None]
        else:
            order[waiting.pop()] = None
    return list(order)


def _waits_for_others(frame: Frame) -> bool:
    """Tell whether anything in a frame runs only once the same has begun on other devices."""
    nodes = (node for each in frame.walk() for node in each.body.nodes.values())
    return any(node.op.startswith(_COLLECTIVE) for node in nodes)


def _needed(node: Any) -> set[str]:
    """Return the nodes that a node depends on."""
    return {split(tensor)[0] for tensor in data_inputs(node)} | set(control_inputs(node))


class Edits:
    """The edits of a frame are what is inserted into it.

    Attributes:
        after: what an output of a node is once the routines after it have run.
        outer: what a gradient of a call is for everyone outside it.
        grad_outputs: what a gradient that comes into a call is inside it.
        inputs_of: what a node takes, if routines run before it.
        waits: stages that must run before a node does.
        last: the last stage at a node, for those who wait for the node.
        replaced: nodes that are kept only for their own gradients.
        groups: the composites that routines run around.
        exits: what a tensor is inside of layers that it leaves, with their numbers, inner ones
            first; outside of all of them it is what :meth:`current` says.
        enters: what tensors are inside of layers that they enter, by the numbers of these.
        replaced_layers: layers that run only where their gradients need it, with what runs in place
            of each.
        hosts: the stages that call back into Python, with their nodes.
        ordered: these, and those that read what they may assign.
    """

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.after: dict[str, str] = {}
        self.outer: dict[str, str] = {}
        self.grad_outputs: dict[tuple[GradientCall, str], str] = {}
        self.inputs_of: dict[str, list[str]] = {}
        self.waits: dict[str, list[str]] = collections.defaultdict(list)
        self.last: dict[str, str] = {}
        self.replaced: set[str] = set()
        self.groups: list[Group] = []
        self.exits: dict[str, list[tuple[int, str]]] = {}
        self.enters: dict[int, dict[str, str]] = {}
        self.replaced_layers: list[tuple[Layer, str]] = []
        self.hosts: list[tuple[Stage, str]] = []
        self.ordered: list[tuple[Stage, str]] = []

    def current(self, tensor: str) -> str:
        """Return what a tensor is for the rest of the graph."""
        if tensor in self.frame.fed:
            return tensor
        return self.outer.get(tensor) or self.after.get(tensor, tensor)

    def seen(self, tensor: str, path: Path) -> str:
        """Return what a tensor is for whoever is in some layers."""
        for number in reversed(path) if self.enters else ():
            if tensor in self.enters.get(number, ()):
                return self.enters[number][tensor]
        for number, inside in self.exits.get(tensor, ()):
            if number in path:
                return inside
        return self.current(tensor)

    def seen_by(self, tensor: str, reader: str) -> str:
        """Return what a tensor is for a node."""
        if not (self.enters or self.exits):
            return self.current(tensor)
        return self.seen(tensor, self.frame.layers.path(reader))

    def tensors(self, names: Iterable[str | None]) -> list[str | None]:
        """Return tensors of the graph as those of the body."""
        return [None if name is None else self.frame.tensor(name) for name in names]

    def taken(self, node: str) -> list[str]:
        """Return what a node takes."""
        return self.inputs_of.get(node) or [self.current(t) for t in self.frame.inputs[node]]

    def run_in_order(self) -> None:
        """Have routines run in the order of the program, also where data leaves it open.

        In the control flow of version 1 a node may be dead, and would take the next one with it.
        Replicas that wait for one another, each in a collective operator on its device, would wait
        for ever if one of them had to go first.
        """
        body, frame = self.frame.body, self.frame
        if not frame.ordered or any(node.op in _MAYBE_DEAD for node in body.nodes.values()):
            return
        runnable = _runnable(frame)
        places: dict[str, Place] = {name: (at, at) for at, name in enumerate(runnable)}
        for group in self.groups:  # what runs around its parts runs where it gives its result
            at = places[group.root][0]
            places.update({part: (at, places[part][1]) for part in group.parts})
        order = {name: self._place_of(stage, places) for stage, name in self.ordered}
        order |= {
            call: (*places[call], _CALL)
            for call, children in frame.children.items()
            if any(child.ordered for child in children)
        }
        devices = {}
        if _waits_for_others(frame):
            devices = {at: body.nodes[name].device for at, name in enumerate(runnable)}
        last: dict[str, str] = {}
        for name in self._sorted(order):
            node, device = body.nodes[name], devices.get(order[name][0], "")
            if device in last:
                set_inputs(node, data_inputs(node), [*control_inputs(node), last[device]])
            last[device] = name

    def _place_of(self, stage: Stage, places: Mapping[str, Place]) -> tuple[int, int, int]:
        before = stage.point in (Point.BEFORE_OP, Point.BEFORE_BACKWARD_OP)
        rank = 0 if before else _CALL + 1 + list(Point).index(stage.point)
        anchor = stage.anchor
        if isinstance(anchor, LayerAnchor):
            return self._place_of_layer(anchor, before, rank, places)
        if isinstance(anchor, Group):
            at = places[anchor.root][0]
            return (at, -1, rank) if before else (at, at + 1, rank)
        if isinstance(anchor, str):
            return (*places[anchor], rank)
        gradients = self.frame.gradients
        calls = {anchor} if isinstance(anchor, int) else anchor.calls()
        nodes = [
            places[node][0]
            for number in calls
            for node in gradients.nodes_of[gradients.calls[number]]
        ]
        if stage.point is Point.ON_GRAD_OUTPUTS:
            return min(nodes), -1, -1
        return max(nodes), max(nodes), rank

    def _place_of_layer(
        self, anchor: LayerAnchor, before: bool, rank: int, places: Mapping[str, Place]
    ) -> tuple[int, int, int]:
        """Tell where stages at a layer run: before, or after, those of the layers in it."""
        layer = self.frame.layers.calls[anchor.layer]
        nodes = [places[node][0] for node in layer.nodes] or [len(places)]
        depth = len(layer.path) - len(places)
        return (min(nodes), depth, rank) if before else (max(nodes), len(places) - depth, rank)

    def _sorted(self, order: Mapping[str, tuple[int, int, int]]) -> Iterable[str]:
        """List nodes by their places, but none before another that it depends on."""
        nodes = self.frame.body.nodes
        needs = {name: {n for n in _needed(node) if n in nodes} for name, node in nodes.items()}
        readers: dict[str, list[str]] = collections.defaultdict(list)
        for name, needed in needs.items():
            for other in needed:
                readers[other].append(name)
        turns = {name: turn for turn, name in enumerate(order)}  # at one place, as inserted

        def entry(name: str) -> tuple[tuple[int, ...], int, str]:
            return order.get(name, ()), turns.get(name, -1), name

        waiting = {name: len(needed) for name, needed in needs.items()}
        ready = [entry(name) for name, count in waiting.items() if not count]
        heapq.heapify(ready)
        while ready:
            name = heapq.heappop(ready)[-1]
            if name in order:
                yield name
            for reader in readers[name]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(ready, entry(reader))

    def drop_unread(self) -> None:
        """Take out the replaced nodes that no gradient needs."""
        if self.replaced:
            body = self.frame.body
            read = {split(t)[0] for node in body.nodes.values() for t in data_inputs(node)}
            for name in self.replaced - read - {split(t)[0] for t in body.outputs}:
                del body.nodes[name]
        for layer, stage in self.replaced_layers:
            self._drop_layer(layer, stage)

    def _drop_layer(self, layer: Layer, stage: str) -> None:
        """Take out the nodes of a replaced layer, unless it runs for its gradient.

        Whoever waits for one of them waits for what runs in their place, and for what they wait
        for.
        """
        body, nodes = self.frame.body, set(layer.nodes) & self.frame.body.nodes.keys()
        outside = body.nodes.keys() - nodes
        read = {split(tensor)[0] for name in outside for tensor in data_inputs(body.nodes[name])}
        if not nodes.isdisjoint(read | {split(tensor)[0] for tensor in body.outputs}):
            return
        before = {n for name in nodes for n in control_inputs(body.nodes[name])} - nodes
        for name in outside:
            node = body.nodes[name]
            control = control_inputs(node)
            if not nodes.isdisjoint(control):
                kept = [n for n in control if n not in nodes]
                set_inputs(node, data_inputs(node), [*kept, stage, *sorted(before - {name})])
        body.controls = [name for name in body.controls if name not in nodes]
        for name in nodes:
            del body.nodes[name]

    def controls(self, node: str) -> list[str]:
        """List what a node waits for."""
        return [self.last.get(n, n) for n in control_inputs(self.frame.body.nodes[node])]
