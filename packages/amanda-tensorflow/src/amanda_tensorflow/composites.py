"""Several nodes of a graph may be one operator for tools of another vocabulary.

Context maps find them; here they are shown the graph, and each becomes an operator of its own,
with the places at which what is inserted around it goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from amanda import UnsupportedError

from amanda_tensorflow._internals import tensor_util
from amanda_tensorflow.graph.attributes import read_attrs
from amanda_tensorflow.graph.layers import LayerAnchor, LayerGradient
from amanda_tensorflow.graph.operators import operators_of
from amanda_tensorflow.notes import notes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from amanda.driving import Composite, Engine

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.operators import TensorFlowOperator

    Place = tuple[str, int]  # a tensor: the operation that makes it, and which of its outputs


class Group(NamedTuple):
    """A group is the nodes of a composite in one frame.

    Attributes:
        root: the node that gives the result.
        parts: all nodes, the root among them.
        uses: for each input, the nodes that take it and at which positions.
    """

    root: str
    parts: tuple[str, ...]
    uses: tuple[tuple[tuple[str, int], ...], ...]


def uses_of(anchor: str | Group, position: int) -> Sequence[tuple[str, int]]:
    """List the nodes that take an input of a node or group, and at which positions."""
    return anchor.uses[position] if isinstance(anchor, Group) else ((anchor, position),)


class GradientGroup(NamedTuple):
    """A gradient group is the calls that compute the gradient of a composite in one frame.

    Attributes:
        root: number of the call for the operator that gives the result.
        uses: for each input, numbers of the calls that compute a part of its gradient, and at
            which positions they return it.
    """

    root: int
    uses: tuple[tuple[tuple[int, int], ...], ...]

    def calls(self) -> set[int]:
        """Return the numbers of the calls."""
        return {self.root, *(number for uses in self.uses for number, _ in uses)}


Anchor = str | int | Group | GradientGroup | LayerAnchor | LayerGradient
"""Where something is inserted: at a node, at the gradient call of a number, or around many."""


def root_of(anchor: str | int | Group | GradientGroup) -> str | int:
    """Return the node, or the number of the call, that gives the result at an anchor."""
    return anchor if isinstance(anchor, (str, int)) else anchor.root


class Whole(NamedTuple):
    """A whole is a composite in one graph.

    Attributes:
        composite: what the context map found.
        operator: what tools see of it.
    """

    composite: Composite
    operator: TensorFlowOperator

    def uses(self, graph: Any) -> tuple[tuple[tuple[str, int], ...], ...]:
        """List for each input the operations that take it, and at which positions."""
        operations = [graph.get_operation_by_name(part) for part in self.composite.parts]
        return tuple(
            tuple(
                (operation.name, position)
                for operation in operations
                for position, tensor in enumerate(operation.inputs)
                if (tensor.op.name, tensor.value_index) == place
            )
            for place in self.composite.inputs
        )


def wholes_of(graph: Any, engine: Engine) -> list[Whole]:
    """List the composites of a graph for the active tools."""
    known = notes_of(graph).composites
    operators = operators_of(graph)
    for vocabulary, context_map in engine.context_maps.items():
        if known.get(vocabulary, (-1,))[0] != len(operators):
            found = context_map.composites(_ForwardGraph(graph), engine.driver)
            wholes = [Whole(c, operators[c.parts[-1]].composite(c.type, vocabulary)) for c in found]
            known[vocabulary] = len(operators), wholes
    return [whole for vocabulary in engine.context_maps for whole in known[vocabulary][1]]


def parts_of(wholes: Iterable[Whole]) -> dict[str, frozenset[str]]:
    """Tell for each operation that is a part of a composite in which vocabularies it is one."""
    found: dict[str, frozenset[str]] = {}
    for whole in wholes:
        assert whole.operator.only_in is not None
        for part in whole.composite.parts:
            found[part] = found.get(part, frozenset()) | {whole.operator.only_in}
    return found


def group_in(frame: Frame, whole: Whole) -> Group | None:
    """Find the nodes of a composite in a frame; None where it does not run as a whole."""
    nodes = {part: frame.node(part) for part in whole.composite.parts}
    found = tuple(node for node in nodes.values() if node in frame.running)
    if len(found) < len(nodes):
        return None
    uses = tuple(
        tuple((nodes[name] or "", position) for name, position in places)
        for places in whole.uses(frame.graph)
    )
    return Group(found[-1], found, uses)


def gradient_group(frame: Frame, root: int, whole: Whole, graph: Any) -> GradientGroup:
    """Find the calls of a frame that compute the gradient of a composite.

    Args:
        frame: the frame.
        root: number of the call for the operator that gives the result.
        whole: the composite.
        graph: the graph that it is in.
    """
    numbers = _calls(frame, whole, graph)
    turn = numbers[whole.composite.parts[-1]].index(root)  # a gradient may be taken several times
    return GradientGroup(
        root,
        tuple(
            tuple(
                (numbers[name][turn], position)
                for name, position in places
                if turn < len(numbers[name])
            )
            for places in whole.uses(graph)
        ),
    )


def check_taken_as_a_whole(frame: Frame, whole: Whole, graph: Any) -> None:
    """Refuse what routines are to do with a gradient whose parts cannot be told apart.

    Raises:
        UnsupportedError: it is taken several times, and not by all parts each time.
    """
    numbers = _calls(frame, whole, graph)
    times = len(numbers[whole.composite.parts[-1]])
    if any(found and len(found) != times for found in numbers.values()):
        raise UnsupportedError(
            f"the gradient of {whole.operator.named} is taken several times, for other inputs each "
            "time, and which of its parts belong together cannot be told; take it once for all of "
            "them, or have a native tool look at the parts"
        )


def _calls(frame: Frame, whole: Whole, graph: Any) -> dict[str, list[int]]:
    """List for each part the numbers of the calls that compute its gradient."""
    numbers: dict[str, list[int]] = {part: [] for part in whole.composite.parts}
    for number, call in enumerate(frame.gradients.calls):
        if call.forward in numbers and call.forward_graph() is graph:
            numbers[call.forward].append(number)
    return numbers


class _ForwardGraph:
    """Context maps look at the forward operators of a graph through this."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._operators = operators_of(graph)

    def operators(self) -> Iterator[str]:
        yield from self._operators

    def type(self, name: str) -> str | None:
        operator = self._operators.get(name)
        return None if operator is None else operator.type

    def inputs(self, name: str) -> Sequence[Place]:
        operation = self._graph.get_operation_by_name(name)
        return [(tensor.op.name, tensor.value_index) for tensor in operation.inputs]

    def attrs(self, name: str) -> Mapping[str, Any]:
        return read_attrs(self._graph.get_operation_by_name(name))

    def readers(self, place: Place) -> list[str]:
        names = [operation.name for operation in self.tensor(place).consumers()]
        return [name for name in names if name in self._operators]

    def tensor(self, place: Place) -> Any:
        name, index = place
        return self._graph.get_operation_by_name(name).outputs[index]

    def constant(self, place: Place) -> Any:
        tensor = self.tensor(place)
        value = tensor_util.constant_value(tensor)
        return tensor_util.try_evaluate_constant(tensor) if value is None else value
