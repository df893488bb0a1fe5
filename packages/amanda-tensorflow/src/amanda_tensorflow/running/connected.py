"""A session may run with tensors of its graph connected in another way.

A session's graph cannot be changed once it has run. But a session can be told, for each thing that
it is asked to run, to give the readers of one tensor the value of another one.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from amanda_tensorflow._internals import config_pb2, errors, pywrap_tf_session, session_lib
from amanda_tensorflow.graph.state import note_new_streams
from amanda_tensorflow.notes import attached

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amanda_tensorflow.running.sessions import SessionCopy


def tensor_name(output: Any) -> str:
    """Return the name of a TF_Output."""
    return f"{pywrap_tf_session.TF_OperationName(output.oper)}:{output.index}"


def run_connected(
    session: Any, options: Any, feeds: Mapping[Any, Any], copy: SessionCopy, metadata: Any
) -> list[Any]:
    """Run a copy that has connections, and return what its fetches are.

    Args:
        session: the session.
        options: a buffer with RunOptions, or None.
        feeds: values by the tensors that they are for.
        copy: what is run.
        metadata: a buffer for RunMetadata, or None.
    """
    by_name = {tensor_name(feed): value for feed, value in feeds.items()}
    serialized = b"" if options is None else pywrap_tf_session.TF_GetBuffer(options)
    fetches = [tensor_name(fetch) for fetch in copy.fetches]
    unique = list(dict.fromkeys(fetches))
    names = sorted(by_name)
    run = _callable(session, copy, serialized, tuple(names), unique)
    values = pywrap_tf_session.TF_SessionRunCallable(
        session._session, run._handle, [by_name[name] for name in names], metadata
    )
    found = dict(zip(unique, values, strict=True))
    return [found[name] for name in fetches]


def _callable(
    session: Any, copy: SessionCopy, options: bytes, feeds: tuple[str, ...], fetches: Sequence[str]
) -> Any:
    """Have the session make a callable of a copy, or return the one made."""
    made: weakref.WeakKeyDictionary[SessionCopy, dict[Any, Any]]
    made = attached(session, "_amanda_callables", weakref.WeakKeyDictionary)
    known = made.setdefault(copy, {})
    key = options, feeds
    if key not in known:
        session._extend_graph()
        try:
            known[key] = _made(session, copy, options, feeds, fetches)
        except (errors.InvalidArgumentError, errors.NotFoundError, LookupError):
            # TensorFlow has put functions into the graph in another way than is known here
            note_new_streams("a session", copy.below.give_up())
            known[key] = _made(session, copy, options, feeds, fetches)
    return known[key]


def _made(
    session: Any, copy: SessionCopy, options: bytes, feeds: tuple[str, ...], fetches: Sequence[str]
) -> Any:
    asked = config_pb2.CallableOptions(
        feed=feeds, fetch=fetches, target=dict.fromkeys(copy.target_names)
    )
    asked.run_options.ParseFromString(options)
    below = copy.below.connections(session, copy.scope)
    for source, target in [*copy.connections, *below]:
        asked.tensor_connection.add(from_tensor=source, to_tensor=target)
    return session_lib.BaseSession._Callable(session, asked)
