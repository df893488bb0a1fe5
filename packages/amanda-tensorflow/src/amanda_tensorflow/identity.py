"""Which operator a node is: its id, its scope, and the same operator again in another graph.

The train, eval and predict functions of one model, and each of its retraced versions, are graphs
of their own that hold the same layers. A node is the operator of an earlier graph when it has the
same place (scope and type, and number among those) and its graph comes from the same Python
function, or, inside a name scope, when the two graphs have a variable in common. Two models side
by side have neither.
"""

from __future__ import annotations

import collections
import copy
import gc
import weakref
from typing import TYPE_CHECKING, Any

from amanda import AmandaError, Operator
from amanda.driving import Ids

from amanda_tensorflow.history import attached, declared_scope, is_update, notes_of
from amanda_tensorflow.names import without_gradients

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

# They stand for arguments or carry control flow: nothing can be put before or after them.
STRUCTURE = frozenset(
    [
        "Placeholder",
        "PlaceholderWithDefault",
        "_Arg",
        "_Retval",
        "Enter",
        "RefEnter",
        "Exit",
        "RefExit",
        "Switch",
        "RefSwitch",
        "Merge",
        "RefMerge",
        "NextIteration",
        "RefNextIteration",
        "LoopCond",
        "ControlTrigger",
    ]
)
# Plumbing of every graph: only tools that name these types see them.
OPT_IN = frozenset(
    [
        "Const",
        "Identity",
        "IdentityN",
        "NoOp",
        "VarHandleOp",
        "VariableV2",
        "Variable",
        "ReadVariableOp",
        "Assign",
        "AssignVariableOp",
        "VarIsInitializedOp",
        "PartitionedCall",
        "StatefulPartitionedCall",
        "If",
        "StatelessIf",
        "Case",
        "StatelessCase",
        "While",
        "StatelessWhile",
        "FakeParam",
        "StackV2",
        "StackPushV2",
        "StackPopV2",
        "EmptyTensorList",
        "TensorListPushBack",
        "TensorListPopBack",
        "OptionalFromValue",
        "OptionalGetValue",
        "OptionalNone",
        "IteratorV2",
        "IteratorGetNext",
        "HashTableV2",
        "MergeV2Checkpoints",
        "SaveV2",
        "RestoreV2",
        "StopGradient",
        "PreventGradient",
        "CheckNumerics",
        "Assert",
    ]
)


class TensorFlowOperator(Operator):
    """An operator that is a node of a graph.

    ``type`` is the node's ``op``, ``name`` its name in the graph where it was seen first.
    """

    __slots__ = ("_node", "_tied")

    def __init__(self, node: Callable[[], Any], **description: Any) -> None:
        super().__init__(backend="tensorflow", **description)
        self._node = node
        self._tied: dict[Hashable, TensorFlowOperator] = {}  # others, which live as long

    def snapshot(self) -> TensorFlowOperator:
        """An equal operator for tools to keep."""
        record = copy.copy(self)
        record._tied = {}  # plans live as long as these
        return record

    @property
    def node_def(self) -> Any:
        """The NodeDef.

        Raises:
            AmandaError: its graph is gone.
        """
        operation = self._node()
        if operation is None:
            raise AmandaError(f"operator {self.id!r} is gone with its graph")
        return operation.node_def

    def gradient_operator(self, operation: Any, number: int) -> TensorFlowOperator:
        """The operator that computes this one's gradient.

        Args:
            operation: where it was seen first.
            number: which one of its type it is, from 1, among those for this operator.
        """
        op = operation.type
        place = f"gradient/{op}" if number == 1 else f"gradient/{op}#{number}"
        if place not in self._tied:
            self._tied[place] = TensorFlowOperator(
                _finder(operation.graph, operation.name),
                id=f"{self.id}/{place}",
                type=op,
                name=operation.name,
                scope=self.scope,
                opt_in=op in OPT_IN,
            )
        return self._tied[place]

    def composite(self, type: str, vocabulary: str) -> TensorFlowOperator:
        """The operator of a vocabulary that this one gives the result of."""
        return self._again(
            ("composite", type, vocabulary),
            id=f"{self.id}/{type}",
            type=type,
            opt_in=self.opt_in and self.type not in OPT_IN,
            only_in=vocabulary,
        )

    def part(self, vocabularies: frozenset[str]) -> TensorFlowOperator:
        """This operator where it is a part of a composite; what is decided about it is apart."""
        return self._again(
            ("part", vocabularies),
            id=self.id,
            type=self.type,
            opt_in=self.opt_in,
            part_in=vocabularies,
        )

    def _again(self, key: Hashable, **description: Any) -> TensorFlowOperator:
        if key not in self._tied:
            self._tied[key] = TensorFlowOperator(
                self._node, name=self.name, scope=self.scope, **description
            )
        return self._tied[key]


class _Known:
    """An operator, and by what to recognize it."""

    __slots__ = ("keys", "operator")

    def __init__(self, operator: TensorFlowOperator, keys: frozenset[Hashable]) -> None:
        self.operator = weakref.ref(operator)
        self.keys = keys


class Identities:
    """The operators of all graphs that are alive."""

    def __init__(self) -> None:
        self._by_place: dict[str, list[_Known]] = {}
        self._ids = Ids()
        self._collected = False

    def identify(
        self,
        graphs: Iterable[tuple[Any, str, Iterable[tuple[str, str]]]],
        variables: Iterable[Hashable],
    ) -> None:
        """Make or find the operators of graphs that are run as one.

        Args:
            graphs: each graph with the scope that it is called in, and name and type of its forward
                nodes; what is called comes after its caller.
            variables: what tells the variables that they use from all others.
        """
        self._collected = False
        counts: collections.Counter[str] = collections.Counter()
        taken: set[int] = set()
        function: Hashable = None
        for index, (graph, around, nodes) in enumerate(graphs):
            if index == 0:
                notes = notes_of(graph)
                function = ("graph", notes.number) if notes.function is None else notes.function
            operators = operators_of(graph)
            for name, op in nodes:
                scope = within(around, declared_scope(graph, name.rpartition("/")[0]))
                again = graph.get_operation_by_name(name)._id in notes_of(graph).recomputed
                if again:
                    scope = without_gradients(scope)
                place = f"{scope}/{op}" if scope else op
                if again:
                    place += "/recomputed"
                counts[place] += 1
                if counts[place] > 1:
                    place += f"#{counts[place]}"
                if name in operators:
                    taken.add(operators[name].serial)
                    continue
                keys = frozenset([function, *(variables if scope else ())])
                operator = self._recognize(place, keys, taken)
                if operator is None:
                    operator = self._new(graph, name, op, scope, place, keys)
                taken.add(operator.serial)
                operators[name] = operator

    def _recognize(
        self, place: str, keys: frozenset[Hashable], taken: set[int]
    ) -> TensorFlowOperator | None:
        for known in self._by_place.get(place, ()):
            operator = known.operator()
            if operator is not None and operator.serial not in taken and known.keys & keys:
                known.keys |= keys
                return operator
        return None

    def _new(
        self, graph: Any, name: str, op: str, scope: str, place: str, keys: frozenset[Hashable]
    ) -> TensorFlowOperator:
        operator = TensorFlowOperator(
            _finder(graph, name),
            id=self._unused(place),
            type=op,
            name=name,
            scope=scope,
            opt_in=op in OPT_IN or is_update(graph, name.rpartition("/")[0]),
        )
        self._ids.give(operator.id, operator)
        known = [k for k in self._by_place.get(place, ()) if k.operator() is not None]
        self._by_place[place] = [*known, _Known(operator, keys)]
        return operator

    def _unused(self, place: str) -> str:
        """An id for a new operator."""
        if place in self._ids and not self._collected:
            # Graphs are cycles: an id must not depend on when those of a lost model are collected.
            gc.collect()
            self._collected = True
        if place not in self._ids:
            return place
        return self._ids.free(place.partition("#")[0], first=2)


def within(around: str, scope: str) -> str:
    """A scope of a function as one of the program, which calls the function in another."""
    if not around or f"{scope}/".startswith(f"{around}/"):
        return scope
    return f"{around}/{scope}" if scope else around


def operators_of(graph: Any) -> dict[str, TensorFlowOperator]:
    """The operators known so far in a graph, by the names of their nodes; it keeps them alive."""
    operators: dict[str, TensorFlowOperator] = attached(graph, "_amanda_operators", dict)
    return operators


def _finder(graph: Any, name: str) -> Callable[[], Any]:
    """A function that gives an operation while its graph is alive."""
    reference = weakref.ref(graph)

    def find() -> Any:
        graph = reference()
        return None if graph is None else graph.get_operation_by_name(name)

    return find
