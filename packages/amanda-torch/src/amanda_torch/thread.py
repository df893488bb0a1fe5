"""What each thread carries: the tools in force, and where in the model it is."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda.engine import ByOperator, Engine

    from amanda_torch.identity import Node

# A dispatch key that nothing else uses. While it is included in a thread, operators that have a
# kernel on it arrive there first; all others fall through at no cost.
KEY_NAME = "TESTING_ONLY_GenericMode"
_KEY = torch._C._dispatch_key_parse(KEY_NAME)
_include = torch._C._dispatch_tls_set_dispatch_key_included


class ThreadState(threading.local):
    """State of the current thread.

    Attributes:
        engine: the tools in force, None for none.
        node: the calling context of the innermost module, None outside of modules.
        visits: how often each site was passed within the outermost module call.
        floor: identity of the frame that entered the outermost scope; call paths end there.
        origin: the path that led to the checkpoint that is being run again.
        session: gives what identifies the outermost scope that was entered last.
        outside: the calling context of operators outside of modules, as long as a scope is open.
        tracking: whether what the current routine returns will have gradients passed through.
        known: whether a scope was ever entered in this thread.
        probing: whether a gradient is being computed just to show it to an analysis.
    """

    engine: Engine | None = None
    node: Node | None = None
    visits: dict[int, int] | None = None
    floor: int = 0
    origin: tuple[int, ...] = ()
    session: Callable[[], ByOperator | None] = staticmethod(lambda: None)
    outside: Node
    tracking: bool = False
    known: bool = False
    probing: bool = False


thread = ThreadState()


def intercept(on: bool) -> None:
    """Have operators of this thread arrive at our kernels, or not."""
    _include(_KEY, on)


def intercepting() -> bool:
    """Whether operators of this thread arrive at our kernels."""
    return torch._C._dispatch_tls_is_dispatch_key_included(_KEY)
