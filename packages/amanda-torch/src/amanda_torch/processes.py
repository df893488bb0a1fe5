"""The processes of one program tell each other things beside its own collectives.

They leave notes in the store by which ``torch.distributed`` had them meet. That needs no memory of
a device, and nobody waits but the first: a process that has failed holds up no other one for good.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import distributed

from amanda_torch._internals import default_store

if TYPE_CHECKING:
    from collections.abc import Sequence

_turns = itertools.count()  # all processes gather as often, in the same order


class _Meeting(NamedTuple):
    store: Any
    rank: int
    size: int


def gather(value: Any, timeout: float) -> Sequence[Any] | None:
    """Return what every process gives, in the first one; None in the others."""
    meeting = _meeting(timeout)
    if meeting is None:
        return [value]
    store, rank, size = meeting
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    place = f"amanda/{attempt}/{next(_turns)}"
    if rank > 0:
        store.set(f"{place}/{rank}", json.dumps(value))
        return None
    latest = time.monotonic() + timeout
    return [value, *(_taken(store, f"{place}/{other}", latest) for other in range(1, size))]


def _taken(store: Any, key: str, latest: float) -> Any:
    """Return what a process has left; None if it has not come by then."""
    left = max(0.0, latest - time.monotonic())
    try:
        store.wait([key], timedelta(seconds=left))
    except (RuntimeError, ValueError):
        return None
    return json.loads(store.get(key))


def _meeting(timeout: float) -> _Meeting | None:
    """Return where the processes meet; None if this one is alone."""
    if not distributed.is_available():
        return None
    if distributed.is_initialized():
        size = distributed.get_world_size()
        return _Meeting(default_store(), distributed.get_rank(), size) if size > 1 else None
    environment = os.environ
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    size = int(environment["WORLD_SIZE"])
    if size == 1:
        return None
    store = distributed.TCPStore(  # type: ignore[attr-defined]  # of torchrun, which is there as long as its processes are
        environment["MASTER_ADDR"],
        int(environment["MASTER_PORT"]),
        is_master=False,
        timeout=timedelta(seconds=timeout),
    )
    return _Meeting(store, int(environment["RANK"]), size)
