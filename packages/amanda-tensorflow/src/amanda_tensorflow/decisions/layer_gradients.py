"""The tools decide about the gradients of layers; this finds where and of what those are computed.

The gradient of a result is what comes into the gradient of the node that makes it. The gradient of
an input is the sum of what the gradients of the layer's nodes that read it return. Tools decide
about both along with the layer.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from amanda import UnsupportedError

from amanda_tensorflow.decisions.asked import LayerSide
from amanda_tensorflow.graph.body import split
from amanda_tensorflow.graph.called_functions import FUNCTION_CALLS
from amanda_tensorflow.graph.frames import Frame
from amanda_tensorflow.graph.layers import LayerGradient
from amanda_tensorflow.graph.rows import with_rows
from amanda_tensorflow.notes import notes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from amanda.driving import Action, Plan

    from amanda_tensorflow.decisions.asking import Asking
    from amanda_tensorflow.decisions.layers import LayerDecisions
    from amanda_tensorflow.graph.layers import Layer
    from amanda_tensorflow.graph.operators import TensorFlowOperator
    from amanda_tensorflow.routines.stages import Asked

    Turn = tuple[int, int]
    """The range of nodes that compute a gradient: it may be taken several times."""
    Calls = Mapping[str, Mapping[Turn, int]]
    """By forward operator, and which time, the number of the call that computes its gradient."""


class LayerGradientDecisions:
    """This inserts what tools want at the gradients of layers that frames compute."""

    def __init__(self, asking: Asking, layers: LayerDecisions) -> None:
        self._asking = asking
        self._layers = layers
        self._homes: dict[Any, Frame] = {frame.graph: frame for frame in asking.frames}

    def of_frame(self, frame: Frame) -> None:
        """Insert stages at the layers' gradients in a frame, wherever the layers are."""
        calls: dict[Any, dict[str, dict[Turn, int]]] = collections.defaultdict(dict)
        for number, call in enumerate(frame.gradients.calls):
            graph = call.forward_graph()
            if graph is not None and not frame.running.isdisjoint(frame.gradients.nodes_of[call]):
                turn = _turn(frame, *call.made[:1])
                calls[graph].setdefault(call.forward, {}).setdefault(turn, number)
        for graph, by_operator in calls.items():
            if notes_of(graph).layers:
                self._of_graph(frame, self._home(graph), by_operator)

    def asked_elsewhere(self, graph: Any) -> Iterator[Asked]:
        """List what routines on gradients in other functions ask for of a graph's layers."""
        for layer, _, plan in self._decided(self._home(graph)):
            yield from LayerSide(self._home(graph), layer).asked(plan.asked).values()

    def _home(self, graph: Any) -> Frame:
        """Return a frame of a graph, which may not run now."""
        if graph not in self._homes:
            self._homes[graph] = Frame.of_graph(graph)
        return self._homes[graph]

    def _decided(self, home: Frame) -> Iterator[tuple[Layer, TensorFlowOperator, Plan]]:
        """List the layers of a graph at whose gradients something is inserted."""
        for layer in home.layers.calls.values():
            plan = self._layers.known(home, layer)
            operator = layer.call.operator()
            whole = None if plan is None else plan.whole
            if operator is not None and whole is not None and not whole.is_noop:
                yield layer, operator, whole

    def _of_graph(self, frame: Frame, home: Frame, calls: Calls) -> None:
        for layer, operator, plan in self._decided(home):
            turns = {turn for node in layer.nodes for turn in calls.get(_name(home, node), ())}
            for number, turn in enumerate(sorted(turns)):
                self._turn(frame, home, layer, operator, plan, calls, (number, turn))

    def _turn(
        self,
        frame: Frame,
        home: Frame,
        layer: Layer,
        operator: TensorFlowOperator,
        plan: Plan,
        calls: Calls,
        numbered: tuple[int, Turn],
    ) -> None:
        """Insert at one of the times that the gradient of a layer is computed."""
        number, turn = numbered
        at = {name: by_turn[turn] for name, by_turn in calls.items() if turn in by_turn}
        said = plan.actions[0].tool.name, operator.named
        gradient = _LayerGradient(frame, home, layer, at, said)
        gradient.check()
        ends = [gradient.output(name) for name in layer.outputs]
        anchor = LayerGradient(
            layer.number,
            number,
            tuple(place for place, _ in ends),
            tuple(parts for _, parts in ends),
            tuple(tuple(gradient.parts(name)) for name in layer.inputs),
        )
        if not anchor.calls():
            return  # no gradient flows through it
        side = LayerSide(home, layer)
        inserting = self._asking.inserting(frame, anchor, operator, None, (), side)
        grad_outputs = [gradient.came_in(place, parts) for place, parts in ends]
        grad_inputs = [gradient.returned(uses) for uses in anchor.uses]
        for actions, gradients in ((plan.before, grad_outputs), (plan.after, grad_inputs)):
            _check_whole(frame, actions, gradients, operator)
            inserting.chain(actions, gradients)


class _LayerGradient:
    """A layer gradient is one time that the gradient of a layer is computed in a frame.

    Args:
        frame: where.
        home: a frame of the layer's own graph.
        layer: the layer.
        at: for each forward operator the number of the call that computes its gradient.
        said: the tool and the layer, for messages.
    """

    def __init__(
        self,
        frame: Frame,
        home: Frame,
        layer: Layer,
        at: Mapping[str, int],
        said: tuple[str, str],
    ) -> None:
        self._tool, self._named = said
        self._frame = frame
        self._home = home
        self._layer = layer
        self._at = at
        self._calls = frame.gradients.calls

    def parts(self, name: str) -> Iterator[tuple[int, int]]:
        """List the calls that return parts of the gradient of a tensor that the layer reads."""
        for node, position in self._home.layers.readers(self._layer, self._home.tensor(name)):
            number = self._at.get(_name(self._home, node))
            if number is None:
                continue
            returned = self._calls[number].grad_inputs
            if position < len(returned) and self._frame.computed(returned[position]) is not None:
                yield number, position

    def output(self, name: str) -> tuple[tuple[int, int] | None, tuple[str, ...]]:
        """Find where the gradient of a result comes in, and its parts where it is not all of it."""
        operation, position = split(name)
        number = self._at.get(operation)
        if number is None or position >= len(self._calls[number].grad_outputs):
            return None, ()
        gradient = self._calls[number].grad_outputs[position]
        if self._frame.computed(gradient) is None:
            return None, ()
        returned = [self._calls[use].grad_inputs[at] for use, at in self.parts(name)]
        inside = set(map(self._frame.tensor, filter(None, returned)))
        if not inside:
            return (number, position), ()
        sum_of = self._frame.tensor(str(gradient))
        if sum_of in inside:
            return None, ()
        node, _ = split(sum_of)
        every = self._frame.inputs.get(node, ())
        if self._frame.body.nodes[node].op != "AddN" or not inside.issubset(every):
            raise UnsupportedError(
                f"{self._tool}: the gradient of {name!r}, which {self._named} returns and reads "
                "itself, cannot be told from that of what it reads; insert at the layers in it"
            )
        return (number, position), tuple(t for t in every if t not in inside)

    def came_in(self, place: tuple[int, int] | None, parts: Sequence[str]) -> Any:
        """Return a tensor of the graph like the gradient of a result."""
        if parts:
            return self._frame.graph_tensor(parts[0])
        return place and self._frame.computed(self._calls[place[0]].grad_outputs[place[1]])

    def returned(self, uses: Sequence[tuple[int, int]]) -> Any:
        """Return a tensor of the graph like the gradient of an input."""
        if not uses:
            return None
        number, position = uses[0]
        return self._frame.computed(self._calls[number].grad_inputs[position])

    def check(self) -> None:
        """Refuse a layer at whose edges functions are called, whose gradients nobody notes."""
        home, layer = self._home, self._layer
        ends = [split(home.tensor(name))[0] for name in layer.outputs]
        for name in layer.inputs:
            ends += [node for node, _ in home.layers.readers(layer, home.tensor(name))]
        for node in ends:
            called = home.body.nodes.get(node)
            if called is not None and called.op in FUNCTION_CALLS and node not in self._at:
                raise UnsupportedError(
                    f"{self._tool}: what {self._named} takes or gives goes to or comes from a "
                    f"tf.function that it calls ({node!r}), whose gradient nobody notes; insert at "
                    "the layers within that, or have the layer run it as a plain function"
                )


def _name(home: Frame, node: str) -> str:
    return str(home.operations[node].name)


def _turn(frame: Frame, made: Turn = (0, 0)) -> Turn:
    """Find where the narrowest range of nodes is that computes gradients and has a call in it."""
    around = [
        (section[0][0], section[-1][1])
        for section in notes_of(frame.graph).sections
        if any(first <= made[0] and made[1] <= last for first, last in section)
    ]
    return min(around, key=lambda s: s[1] - s[0], default=(0, 0))


def _check_whole(
    frame: Frame, actions: Iterable[Action], gradients: Sequence[Any], operator: TensorFlowOperator
) -> None:
    """Refuse routines on gradients of which there are some rows."""
    names = [None if gradient is None else gradient.name for gradient in gradients]
    rows = with_rows(frame.graph, names)[1]
    for action in actions:
        if not rows.keys().isdisjoint(rows if action.indices is None else action.indices):
            raise UnsupportedError(
                f"{action.tool.name}: of a gradient of {operator.named} there are some rows "
                "(tf.IndexedSlices), which cannot be given to routines at layers; register with "
                "add_inst_for_gradient for the operator"
            )
