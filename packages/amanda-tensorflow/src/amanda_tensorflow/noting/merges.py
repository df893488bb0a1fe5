"""What a replica of a strategy makes while another one waits is no part of what that is making.

The replicas of a ``MirroredStrategy`` build one graph, by turns: each in a thread of its own, until
it waits for the others to do something together, as to add up their gradients. It may do so while
it computes gradients, and the others go on with their forward code then.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from amanda_tensorflow._internals import context, ops
from amanda_tensorflow.notes import last_id, notes_of, without

if TYPE_CHECKING:
    from collections.abc import Callable


def noting_merges(merge_call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``_MirroredReplicaContext._merge_call``, in which a replica waits for the others."""

    @functools.wraps(merge_call)
    def wrapped(replica: Any, merge: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if context.executing_eagerly():
            return merge_call(replica, merge, args, kwargs)
        graph = ops.get_default_graph()
        notes, waiting_since = notes_of(graph), last_id(graph)

        @functools.wraps(merge)
        def merging(*args: Any, **kwargs: Any) -> Any:
            first = last_id(graph)
            try:
                return merge(*args, **kwargs)
            finally:
                notes.merged.append((first, last_id(graph)))

        result = merge_call(replica, merging, args, kwargs)
        away = notes.away.setdefault(threading.get_ident(), [])
        away += without((waiting_since, last_id(graph)), notes.merged)
        return result

    return wrapped
