"""Replicas of a strategy: threads that do a part of the work of the one that starts them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from amanda_tensorflow._internals import mirrored_run

if TYPE_CHECKING:
    from amanda_tensorflow.driver import TensorFlowDriver

_ENGINE = "_amanda_engine"


def patches(driver: TensorFlowDriver) -> list[tuple[Any, str, Any, Any]]:
    """What to exchange in TensorFlow so that replicas run under the tools of their starter."""
    owner = mirrored_run._MirroredReplicaThread
    start, run = owner.start, owner.run

    @functools.wraps(start)
    def starting(thread: Any) -> None:
        setattr(thread, _ENGINE, driver.engine())
        start(thread)

    @functools.wraps(run)
    def running(thread: Any) -> None:
        with driver.joined(getattr(thread, _ENGINE, None)):
            run(thread)

    return [(owner, "start", start, starting), (owner, "run", run, running)]
