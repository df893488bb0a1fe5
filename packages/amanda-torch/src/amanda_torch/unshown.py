"""What the driver itself computes shows neither in modes nor in a profile of the program."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from amanda_torch._internals import count_modes, disable_modes, is_profiled, record_functions

if TYPE_CHECKING:
    from collections.abc import Iterator

_nothing = contextlib.nullcontext()


def unshown() -> contextlib.AbstractContextManager[None]:
    """Open a block in which operators are not shown to modes and profilers, if there are any."""
    return _unshown() if count_modes() or is_profiled() else _nothing


@contextlib.contextmanager
def _unshown() -> Iterator[None]:
    profiled = is_profiled()
    if profiled:
        record_functions(False)
    try:
        with disable_modes():
            yield
    finally:
        if profiled:
            record_functions(True)
