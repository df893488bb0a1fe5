"""Replicas of a strategy are threads that do a part of the work of the one that starts them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from amanda_tensorflow.thread import active

if TYPE_CHECKING:
    from collections.abc import Callable

_ENGINE = "_amanda_engine"


def starting(start: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``_MirroredReplicaThread.start`` to tell the new thread the tools of this one."""

    @functools.wraps(start)
    def wrapped(replica: Any) -> None:
        setattr(replica, _ENGINE, active.engine)
        start(replica)

    return wrapped


def running(run: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``_MirroredReplicaThread.run`` to run under the tools of the thread that waits."""

    @functools.wraps(run)
    def wrapped(replica: Any) -> None:
        active.put(getattr(replica, _ENGINE, None))
        try:
            run(replica)
        finally:
            active.put(None)

    return wrapped
