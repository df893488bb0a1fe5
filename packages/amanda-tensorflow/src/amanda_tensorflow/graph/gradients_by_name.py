"""Names tell which forward operator a gradient belongs to, in graphs that nobody noted.

``tf.gradients`` puts the gradient of ``a/MatMul`` into the scope ``gradients/a/MatMul_grad``. A
tape keeps only the scope around the operator, ``gradient_tape/a``; there the tensors that are read
tell.
"""

from __future__ import annotations

import collections
import re
import warnings
from typing import TYPE_CHECKING, Any

from amanda import AmandaWarning

from amanda_tensorflow._internals import cond_v2, while_v2
from amanda_tensorflow.notes import GradientCall, notes_of, title

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_SYMBOLIC = re.compile(r"(?:.*/)?gradients(?:_\d+)?/(.+)_grad/[^/]+$")
_TAPE = re.compile(r"^gradient_tape/(?:(.+)/)?[^/]+$")
_ANY = re.compile(r"(?:^|/)gradients(?:_\d+)?/|^gradient_tape/")

# Graphs of the gradient of a branch, or of a loop's body, by which TensorFlow calls tf.gradients.
_OF_PARTS = (cond_v2._CondGradFuncGraph, while_v2._WhileBodyGradFuncGraph)


def is_gradient(name: str) -> bool:
    """Tell by its name whether a node computes gradients."""
    return _ANY.search(name) is not None


def calls_by_name(
    graph: Any, operations: Mapping[str, Any]
) -> Iterator[tuple[GradientCall, list[str]]]:
    """List the gradients in a graph, as far as names tell, with the nodes of each.

    Gradients that come in and go out are known only where there is one of each.

    Args:
        graph: where the gradients are.
        operations: its operations, by the names of their nodes.
    """
    groups: dict[Any, list[str]] = collections.defaultdict(list)
    alike: set[str] = set()
    forward_graph = _forward_graph(graph)
    for name, operation in operations.items():
        candidates = _forward(operation, forward_graph)
        if candidates:
            groups[candidates[0]].append(name)
        if len(candidates) > 1:
            alike.update(candidate.name for candidate in candidates)
    if alike:
        _warn_of(graph, sorted(alike))
    for forward, names in groups.items():
        made = {operations[name] for name in names}
        known = _around(forward)
        coming = _unique(
            tensor
            for name in names
            for tensor in operations[name].inputs
            if tensor.op not in made and _source(tensor) not in known
        )
        going = _unique(
            output
            for name in names
            for output in operations[name].outputs
            if any(consumer not in made for consumer in output.consumers())
            or any(output is tensor for tensor in getattr(graph, "outputs", ()))
        )
        grad_inputs = going if len(going) == len(forward.inputs) == 1 else []
        yield GradientCall(forward, coming[: len(forward.outputs)], grad_inputs), names


def _warn_of(graph: Any, alike: Sequence[str]) -> None:
    """Warn, once for a graph, that gradients may be taken for those of another operator."""
    if not notes_of(graph).warned:
        notes_of(graph).warned = True
        warnings.warn(
            f"nobody noted which operators the gradients in {title(graph)!r} belong to, "
            f"and {', '.join(alike)} cannot be told apart there: the gradient of one may be taken "
            "for that of another; import amanda_tensorflow before the graph is built, also where "
            "a SavedModel is saved, or give each operator a name scope of its own",
            AmandaWarning,
            stacklevel=2,
        )


def _forward(operation: Any, graph: Any) -> list[Any]:
    """Find the operator that a gradient belongs to, followed by others that it might as well be."""
    symbolic = _SYMBOLIC.match(operation.name)
    if symbolic is not None:
        return _found(graph, symbolic[1])
    if isinstance(operation.graph, _OF_PARTS):  # the counter of a loop is no gradient
        return []
    tape = _TAPE.match(operation.name)
    if tape is None:
        return []
    scope = tape[1] or ""
    exact = _found(graph, scope)
    if exact:
        return exact
    read = {_source(tensor) for tensor in operation.inputs}
    inside = [o for o in graph.get_operations() if o.inputs and o.name.rpartition("/")[0] == scope]
    named = [o for o in inside if operation.type == f"{o.type}Grad"]
    reading = [o for o in inside if read & _around(o)]
    both = [o for o in named if o in reading]
    return both or named or reading


def _forward_graph(graph: Any) -> Any:
    """Find the graph of the forward operators: a backward function has captured their tensors."""
    if isinstance(graph, _OF_PARTS):
        return graph._forward_graph
    for outer, _ in getattr(graph, "captures", ()):
        if hasattr(outer, "op") and not hasattr(outer, "numpy") and graph.name.startswith("__back"):
            return outer.op.graph
    return graph


def _found(graph: Any, name: str) -> list[Any]:
    try:
        return [graph.get_operation_by_name(name)] if name else []
    except KeyError:
        return []


def _around(operation: Any) -> set[Any]:
    """Return the tensors that an operation takes and makes."""
    return {*map(_source, operation.inputs), *map(_source, operation.outputs)}


def _source(tensor: Any) -> Any:
    """Return a reference to a tensor, or to the one outside that it was captured from."""
    for outer, inner in getattr(tensor.graph, "captures", ()):
        if inner is tensor and not hasattr(outer, "numpy"):
            return outer.ref()
    return tensor.ref()


def _unique(tensors: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for tensor in tensors:
        if not any(tensor is other for other in found):
            found.append(tensor)
    return found
