"""What vectorizes a node is noted: it computes a gradient if that does.

``tf.vectorized_map`` and the Jacobians of tapes build the graph of one element, and then, node by
node, one that computes the same for many elements at once (``pfor``).
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import TYPE_CHECKING, Any

from amanda_tensorflow._internals import ops
from amanda_tensorflow.notes import last_id, notes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from amanda_tensorflow.notes import Range


def noting_vectorized(original_op: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Graph._original_op``, in which nodes are made that another one stands behind."""

    @functools.wraps(original_op)
    def wrapped(graph: Any, operation: Any) -> Any:
        entered = original_op(graph, operation)
        is_pfor = graph.get_name_scope().endswith("/pfor")
        return _noting(entered, graph, operation) if is_pfor else entered

    return wrapped


def noting_bodies(init: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``PFor.__init__`` to note the nodes of one element, which do not run where others do."""

    @functools.wraps(init)
    def wrapped(
        pfor: Any, loop_var: Any, loop_len: Any, pfor_ops: Any, *args: Any, **kwargs: Any
    ) -> None:
        graph = ops.get_default_graph()
        names = [operation.name for operation in pfor_ops if operation.graph is graph]
        notes_of(graph).vectorized.update(dict.fromkeys(names, (0, 0)))
        init(pfor, loop_var, loop_len, pfor_ops, *args, **kwargs)

    return wrapped


@contextlib.contextmanager
def _noting(entered: Any, graph: Any, operation: Any) -> Iterator[None]:
    first = last_id(graph)
    with entered:
        yield
    made = first, last_id(graph)
    if made[0] < made[1] and isinstance(operation, ops.Operation):
        _note(graph, operation, made)


def _note(graph: Any, operation: Any, made: Range) -> None:
    notes, known, id = notes_of(graph), notes_of(operation.graph), operation._id
    if id not in known.recomputed:
        for call in known.calls:
            if any(first < id <= last for first, last in call.made):
                notes.calls.append(call.for_many([made]))
                return
        if any(first < id <= last for section in known.sections for first, last in section):
            notes.sections.append([made])
            return
    if operation.graph is graph:
        notes.vectorized[operation.name] = made
    else:  # of a function that is called, a branch or a loop
        notes.vectorized_of.append((made, weakref.ref(operation.graph), operation.name))
