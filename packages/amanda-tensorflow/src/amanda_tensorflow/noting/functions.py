"""The Python function that a graph is traced from is noted meanwhile.

A function that is traced again, for arguments of another shape or in another mode, has the same
operators.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from typing import TYPE_CHECKING, Any

from amanda_tensorflow._internals import tf_decorator
from amanda_tensorflow.notes import last_id, notes_of
from amanda_tensorflow.noting.gradients import in_jacobian

if TYPE_CHECKING:
    from collections.abc import Callable

_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_next_number = itertools.count()


def noting_functions(trace: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``func_graph_from_py_func`` to note what is traced, and whether for a Jacobian."""

    @functools.wraps(trace)
    def wrapped(name: Any, python_func: Any, *args: Any, **kwargs: Any) -> Any:
        graph = trace(name, python_func, *args, **kwargs)
        notes = notes_of(graph)
        if in_jacobian():
            notes.sections.append([(0, last_id(graph))])
        notes.function = _number(tf_decorator.unwrap(python_func)[1])
        return graph

    return wrapped


def _number(function: Any) -> int | None:
    with contextlib.suppress(TypeError):  # not every callable can be referred to weakly
        if function not in _numbers:
            _numbers[function] = next(_next_number)
        return _numbers[function]
    return None
