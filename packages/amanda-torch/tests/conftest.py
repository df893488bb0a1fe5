"""What the tests share: a process in which PyTorch is imported, and no more."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import pytest
from forks import Interpreter

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Interpreter]:
    """Runs programs in processes of their own, whose hashes and addresses are not those here.

    Amanda was never imported there, nor what PyTorch imports only when it is needed.
    """
    with contextlib.closing(Interpreter("torch", path=sys.path)) as interpreter:
        yield interpreter
