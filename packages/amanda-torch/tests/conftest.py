"""What the tests share: a process in which PyTorch is imported, and no more."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import pytest
from forks import Interpreter
from together import Together

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Interpreter]:
    """Runs programs in processes of their own, whose hashes and addresses are not those here.

    Amanda was never imported there, nor what PyTorch imports only when it is needed.
    """
    with contextlib.closing(Interpreter("torch", path=sys.path)) as interpreter:
        yield interpreter


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    """Have what takes an ``interpreter`` run where one is, since that imports PyTorch."""
    return Together(config, log, "interpreter")
