"""A test that tries cases in turn, on one model, names the one that fails."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def case(*of: object) -> Iterator[None]:
    """Open a block that tries a case.

    Args:
        *of: what tells it from the others.

    Raises:
        AssertionError: it fails; this names it, and has what was raised as its cause.
    """
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        raise AssertionError(f"in the case {', '.join(map(repr, of))}: {error}") from error
