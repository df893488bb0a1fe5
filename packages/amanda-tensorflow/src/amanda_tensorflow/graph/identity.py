"""A node is an operator with an id and a scope, and may be the same one as in another graph.

The train, eval and predict functions of one model, and each of its retraced versions, are graphs
of their own that hold the same layers. A node is the operator of an earlier graph when it has the
same place (scope and type, and number among those) and its graph comes from the same Python
function, or, inside a name scope, when the two graphs have a variable in common. Two models side
by side have neither.
"""

from __future__ import annotations

import collections
import functools
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amanda.driving import Ids

from amanda_tensorflow._internals import op_def_registry
from amanda_tensorflow.graph.layers import scope_of
from amanda_tensorflow.graph.node_types import OPT_IN
from amanda_tensorflow.graph.operators import TensorFlowOperator, finder, operators_of
from amanda_tensorflow.notes import notes_of
from amanda_tensorflow.notes.name_scopes import declared_scope, is_update, within, without_gradients

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Hashable, Iterable

    from amanda_tensorflow.notes import Range


@dataclass(slots=True, eq=False)
class _Known:
    """This is an operator that was met, with the keys that recognize it in another graph."""

    operator: weakref.ref[TensorFlowOperator]
    keys: frozenset[Hashable]


class Identities:
    """This knows the operators of all graphs that are alive.

    Attributes:
        ids: what they are called.
    """

    def __init__(self) -> None:
        self.ids = Ids()
        self._by_place: dict[str, tuple[_Known, ...]] = {}

    def identify(
        self,
        kept: set[TensorFlowOperator],
        graphs: Iterable[tuple[Any, str, Iterable[tuple[str, str]]]],
        variables: Iterable[Hashable],
        types: Container[str] | None = None,
    ) -> None:
        """Make or find the operators of graphs that are run as one.

        Args:
            kept: whoever runs the graphs keeps the operators in this set.
            graphs: each graph with the scope that it is called in, and name and type of its forward
                nodes; what is called comes after its caller.
            variables: what tells the variables that they use from all others.
            types: those of the operators that anyone wants; None for all. The ids of operators
                depend on no others than those of the same type.
        """
        counts: collections.Counter[str] = collections.Counter()
        taken: dict[int, TensorFlowOperator] = {}
        # keys that recognize operators outside of name scopes, and those inside
        outside: frozenset[Hashable] = frozenset()
        inside: frozenset[Hashable] = frozenset()
        for index, (graph, around, nodes) in enumerate(graphs):
            if index == 0:
                notes = notes_of(graph)
                function = ("graph", notes.number) if notes.function is None else notes.function
                outside, inside = frozenset([function]), frozenset([function, *variables])
            operators = operators_of(graph)
            for name, op in nodes:
                if types is not None and op not in types:
                    continue
                scope, place = place_of(graph, around, name, op)
                counts[place] += 1
                if counts[place] > 1:
                    place += f"#{counts[place]}"
                operator = operators.get(name)
                if operator is None:
                    keys = inside if scope else outside
                    operator = self._recognize(place, keys, taken)
                    if operator is None:
                        operator = self._new(graph, name, op, scope, place, keys)
                    operators[name] = operator
                taken[operator.serial] = operator
        kept.update(taken.values())

    def identify_layers(
        self,
        kept: set[TensorFlowOperator],
        graphs: Iterable[tuple[Any, str]],
        wants: Callable[[str, str], bool],
    ) -> None:
        """Make or find the operators that calls of layers are, in graphs that are run as one.

        One is the operator of an earlier graph when it is a call of the same layer, and as many
        calls of that come before it.

        Args:
            kept: whoever runs the graphs keeps the operators in this set.
            graphs: each graph with the scope that it is called in.
            wants: whether anyone wants those of a class, at a path.
        """
        counts: collections.Counter[str] = collections.Counter()
        taken: dict[int, TensorFlowOperator] = {}
        for graph, around in graphs:
            for call in sorted(notes_of(graph).layers, key=lambda call: call.began):
                scope = scope_of(graph, around, call)
                # the ids differ, since an operator of this type may be in the layer
                is_type = op_def_registry.get(call.type) is not None
                place = f"{scope}/layer/{call.type}" if is_type else f"{scope}/{call.type}"
                if is_recomputed(graph, call.made):
                    place += "/recomputed"
                counts[place] += 1
                if counts[place] > 1:
                    place += f"#{counts[place]}"
                if not wants(call.type, scope):
                    continue
                operator = call.operator()
                if operator is None:
                    keys = frozenset([("layer", call.number)])
                    operator = self._recognize(place, keys, taken)
                    if operator is None:
                        id = self._free(place)
                        operator = TensorFlowOperator.of_layer(call, id, scope)
                        self._keep(operator, place, keys)
                    call.operator = weakref.ref(operator)
                taken[operator.serial] = operator
        kept.update(taken.values())

    def _recognize(
        self, place: str, keys: frozenset[Hashable], taken: Container[int]
    ) -> TensorFlowOperator | None:
        for known in self._by_place.get(place, ()):
            operator = known.operator()
            if operator is None or operator.serial in taken or known.keys.isdisjoint(keys):
                continue
            known.keys |= keys
            return operator
        return None

    def _new(
        self, graph: Any, name: str, op: str, scope: str, place: str, keys: frozenset[Hashable]
    ) -> TensorFlowOperator:
        operator = TensorFlowOperator(
            finder(graph, name),
            id=self._free(place),
            type=op,
            name=name,
            scope=scope,
            opt_in=op in OPT_IN or is_update(graph, name.rpartition("/")[0]),
        )
        self._keep(operator, place, keys)
        return operator

    def _free(self, place: str) -> str:
        """Find a free id for an operator at a place."""
        return place if place not in self.ids else self.ids.free(place.partition("#")[0], first=2)

    def _keep(self, operator: TensorFlowOperator, place: str, keys: frozenset[Hashable]) -> None:
        """Give an operator its id, and recognize it from now on."""
        self.ids.give(operator.id, operator)
        reference = weakref.ref(operator, functools.partial(self._forget, place))
        self._by_place[place] = (*self._by_place.get(place, ()), _Known(reference, keys))

    def _forget(self, place: str, _: object) -> None:
        """Forget an operator at a place, as it is gone."""
        known = tuple(k for k in self._by_place.pop(place, ()) if k.operator() is not None)
        if known:
            self._by_place[place] = known


def is_recomputed(graph: Any, made: Range) -> bool:
    """Tell whether nodes with ids of a range are forward code that runs in the backward pass."""
    return any(id in notes_of(graph).recomputed for id in range(made[0] + 1, made[1] + 1))


def place_of(graph: Any, around: str, name: str, op: str) -> tuple[str, str]:
    """Return the scope of a node as the program knows it, and its place there."""
    scope = within(around, declared_scope(graph, name.rpartition("/")[0]))
    if graph.get_operation_by_name(name)._id not in notes_of(graph).recomputed:
        return scope, f"{scope}/{op}" if scope else op
    scope = without_gradients(scope)
    return scope, f"{scope}/{op}/recomputed" if scope else f"{op}/recomputed"
