"""The transforms of ``torch.func``, and gradients in forward mode, are told of as they begin."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from torch.compiler import is_dynamo_compiling

from amanda_torch._internals import transform_entries
from amanda_torch.thread import local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Run = Callable[..., Any]


def patches_of_transforms(begins: Callable[[], None]) -> Iterator[tuple[Any, str, Any]]:
    """List the patches that call ``begins`` when a thread with tools enters a transform."""

    def then_begins(enter: Run) -> Run:
        @functools.wraps(enter)
        def entered(*args: Any, **kwargs: Any) -> Any:
            if not is_dynamo_compiling() and local.thread.engine is not None:
                begins()
            return enter(*args, **kwargs)

        return entered

    for place, name in transform_entries:
        module = sys.modules[place]
        yield module, name, then_begins(getattr(module, name))
