"""Notes hold what is known of a graph and TensorFlow does not keep with it.

The notes are taken while a graph is built, by the functions of TensorFlow that
:mod:`amanda_tensorflow.patches` wraps. They are attributes of the graph, so that they live exactly
as long.
"""

from __future__ import annotations

import bisect
import copy
import itertools
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from amanda_tensorflow._internals import indexed_slices, tensor_lib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from amanda_tensorflow.composites import Whole
    from amanda_tensorflow.graph.operators import TensorFlowOperator
    from amanda_tensorflow.notes.layers import LayerCall

    Range = tuple[int, int]
    """Ids of nodes: above the first number, and up to the second."""

_Attached = TypeVar("_Attached")


class GradientCall:
    """This is one call of a registered gradient function: the gradient of one operator.

    Attributes:
        forward_graph: weak reference to the graph that the forward operator is in.
        forward: name of the forward operator.
        grad_outputs: names of the gradients that came in, aligned with the operator's outputs.
        grad_inputs: names of the gradients it returned, aligned with its inputs.
        made: ranges of the ids of the nodes that were made for it.
        repeated: names of nodes through which it reads an input that is the same tensor as an
            earlier one, with how many of those there are.
        vectorized: whether its nodes compute that of many elements at once, which are not the
            gradients of the operator's tensors.
    """

    def __init__(
        self,
        forward: Any,
        grad_outputs: Sequence[Any],
        grad_inputs: Sequence[Any],
        made: Sequence[Range] = (),
    ) -> None:
        self.forward_graph = weakref.ref(forward.graph)
        self.forward: str = forward.name
        self.grad_outputs = [name_of(gradient) for gradient in grad_outputs]
        self.grad_inputs = [name_of(gradient) for gradient in grad_inputs]
        self.made = made
        self.repeated: dict[str, int] = {}
        self.vectorized = False

    def for_many(self, made: Sequence[Range], forward: str | None = None) -> GradientCall:
        """Return what stands for this call where other nodes compute it for many elements at once.

        Args:
            made: ranges of the ids of these nodes.
            forward: name of the operator that does the same for the forward operator, if one does.
        """
        call = copy.copy(self)
        call.made, call.forward, call.vectorized = made, forward or self.forward, True
        call.grad_outputs, call.grad_inputs = [], []
        return call


def name_of(gradient: Any) -> str | None:
    """Return the name of a gradient, or of its rows if it has only some; None for none."""
    if isinstance(gradient, indexed_slices.IndexedSlices):
        gradient = gradient.values
    return gradient.name if isinstance(gradient, tensor_lib.Tensor) else None


_numbers_of_graphs = itertools.count()


@dataclass(slots=True, eq=False)
class Notes:
    """The notes hold what is known of one graph.

    Attributes:
        number: one that no other graph ever has.
        function: a number for the Python function it was traced from, if it was.
        calls: the gradient functions that made nodes in it, inner calls before outer ones.
        sections: for each time that gradients were computed, ranges of the nodes made for it.
        copies: ranges of the nodes that this driver has put there.
        versions: those of TensorFlow that the graph was for, and is for since there are copies.
        recomputed: ids of the nodes among all these that are forward code all the same.
        custom: for the operator that a custom gradient is the gradient of, the ranges of the
            forward nodes whose gradient it stands for.
        merged: ranges of the nodes that replicas of a strategy made together, while all waited.
        away: ranges of the nodes that other replicas made while a thread, by its number, waited.
        recorded: the operators that a tape has seen, by the identity of their attributes, which
            is all that a tape keeps of each of them.
        rows: for a gradient of which there are some rows (``IndexedSlices``), by the name of these,
            the names of their indices and of the shape of the whole, if that was told.
        vectorized: for a node in the body of a ``pfor``, the range of the nodes that compute it for
            many elements at once; an empty one for those that none do.
        vectorized_of: ranges of nodes that compute, for many elements at once, what a node of
            another graph does, with a weak reference to that graph and the name of the node.
        scopes: for a name scope, the scope around it and the name it was opened by.
        updates: the name scopes that an optimizer opened.
        layers: the calls of layers, those that ended first before others.
        functions: graphs of functions that it calls and of which only definitions are known.
        operators: those known so far, by the names of their nodes; who runs them keeps them.
        composites: for a vocabulary, how many operators were known when they were found, and them.
        types: of its operators, and of those of the functions that it calls; None if not needed.
        gradients_in: other graphs in which gradients of its operators are computed.
        captures: as TensorFlow has them, which is another list once there are more.
        captured_from: for the identity of a tensor that is one of them, that outside of the graph.
        warned: whether it was said that some of its operators cannot be told apart.
    """

    number: int = field(default_factory=lambda: next(_numbers_of_graphs))
    function: int | None = None
    calls: list[GradientCall] = field(default_factory=list)
    sections: list[Sequence[Range]] = field(default_factory=list)
    copies: list[Range] = field(default_factory=list)
    versions: tuple[Any, Any] | None = None
    recomputed: set[int] = field(default_factory=set)
    custom: dict[str, list[Range]] = field(default_factory=dict)
    merged: list[Range] = field(default_factory=list)
    away: dict[int, list[Range]] = field(default_factory=dict)
    recorded: dict[int, tuple[Any, str]] = field(default_factory=dict)
    rows: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    vectorized: dict[str, Range] = field(default_factory=dict)
    vectorized_of: list[tuple[Range, weakref.ref[Any], str]] = field(default_factory=list)
    scopes: dict[str, tuple[str, str]] = field(default_factory=dict)
    updates: set[str] = field(default_factory=set)
    layers: list[LayerCall] = field(default_factory=list)
    functions: dict[str, Any] = field(default_factory=dict)
    operators: weakref.WeakValueDictionary[str, TensorFlowOperator] = field(
        default_factory=weakref.WeakValueDictionary
    )
    composites: dict[str, tuple[int, list[Whole]]] = field(default_factory=dict)
    types: frozenset[str] | None = None
    gradients_in: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    warned: bool = False
    captures: Sequence[tuple[Any, Any]] = ()
    captured_from: dict[int, Any] = field(default_factory=dict)

    def computes_gradients(self) -> Callable[[int], bool]:
        """Make a function that tells by id whether a node computes gradients or is the driver's."""
        made = itertools.chain(*self.sections, *(call.made for call in self.calls))
        starts, ends = _united([*self.copies, *made])

        def check(id: int) -> bool:
            place = bisect.bisect_left(starts, id) - 1
            return place >= 0 and id <= ends[place] and id not in self.recomputed

        return check


def _united(ranges: Iterable[Range]) -> tuple[list[int], list[int]]:
    """Return the starts and the ends of ranges, in order, where overlapping ones are one."""
    starts: list[int] = []
    ends: list[int] = []
    for first, last in sorted(ranges):
        if ends and first <= ends[-1]:
            ends[-1] = max(ends[-1], last)
        else:
            starts.append(first)
            ends.append(last)
    return starts, ends


def notes_of(graph: Any) -> Notes:
    """Return the notes on a graph."""
    return attached(graph, "_amanda_notes", Notes)


_attaching = threading.RLock()


def attached(owner: Any, name: str, make: Callable[[], _Attached]) -> _Attached:
    """Return what a graph, function or session carries under a name, made for whoever asks first.

    Args:
        owner: the graph, function or session; what it carries lives as long.
        name: the attribute.
        make: makes it; threads that ask at once get the same one.
    """
    try:
        found: _Attached = getattr(owner, name)
    except AttributeError:
        with _attaching:
            if not hasattr(owner, name):
                setattr(owner, name, make())
            found = getattr(owner, name)
    return found


def title(graph: Any) -> str:
    """Return what messages call a graph: only those of functions have names."""
    return getattr(graph, "name", "the graph of a session") or "a graph"


def made_since(graph: Any, first: int) -> list[Range]:
    """List ranges of the nodes that this thread has made after one, alone or with others."""
    away = notes_of(graph).away.get(threading.get_ident(), ())
    return without((first, last_id(graph)), away)


def without(range: Range, others: Iterable[Range]) -> list[Range]:
    """List what is left of a range of ids without others, which are in order."""
    first, last = range
    left = []
    for start, end in others:
        if start < last and end > first:
            left.append((first, start))
            first = end
    return [(start, end) for start, end in [*left, (first, last)] if start < end]


def last_id(graph: Any) -> int:
    """Return the id of the node that was made last."""
    return int(graph.version) + 1  # ids begin at 2
