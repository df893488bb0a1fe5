"""An operator is run past our kernel, so that what it is made of may arrive at our kernels.

To go on from there takes the dispatch keys with which it has arrived. Only a kernel is told them,
and to be told costs, at each execution: ours is not. Where tools look inside an operator, it is
called once more, to a kernel on another key that goes on from there.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

from amanda_torch._internals import (
    call_boxed,
    dispatch_key_parse,
    keyset_after,
    set_key_included,
)
from amanda_torch.frames import not_a_call_site
from amanda_torch.thread import KEY, intercept, local

if TYPE_CHECKING:
    from collections.abc import Callable

# Another key that nothing else uses, behind ours.
_NAME = "TESTING_ONLY_GenericWrapper"
_KEY = dispatch_key_parse(_NAME)
_PAST_US = keyset_after(_KEY)
assert not _PAST_US.has(KEY)

_libraries: dict[str, torch.library.Library] = {}
_lock = threading.Lock()


def past_us(name: str, operator: Any) -> Callable[..., Any]:
    """Return what runs an operator from the dispatch key after ours.

    Args:
        name: its full name, e.g. ``aten::add.Tensor``.
        operator: the operator.
    """
    handle = operator._handle
    redispatch = handle.redispatch_boxed
    has_kernel = False

    @not_a_call_site
    def go_on(keys: Any, *_: Any, **__: Any) -> Any:
        args, kwargs = local.thread.resuming  # where a number may be in a tensor
        set_key_included(_KEY, False)
        intercept(True)
        return redispatch(keys & _PAST_US, *args, **kwargs)

    @not_a_call_site
    def resume(*args: Any, **kwargs: Any) -> Any:
        nonlocal has_kernel
        if not has_kernel:
            with _lock:
                _library(name).impl(name, go_on, with_keyset=True)
                has_kernel = True
        local.thread.resuming = args, kwargs
        intercept(False)
        set_key_included(_KEY, True)
        try:
            return call_boxed(handle, *args, **kwargs)
        finally:
            set_key_included(_KEY, False)

    return resume


def _library(name: str) -> torch.library.Library:
    """Return the kernels on that key of the operators of one namespace."""
    namespace = name.partition("::")[0]
    if namespace not in _libraries:
        _libraries[namespace] = torch.library.Library(namespace, "IMPL", _NAME)
    return _libraries[namespace]
