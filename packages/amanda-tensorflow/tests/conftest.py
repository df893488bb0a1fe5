"""What the tests share: a process in which TensorFlow is imported, and no more."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING, Any

import pytest
from forks import Interpreter
from together import Together
from xdist import is_xdist_controller

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import TensorFlow ahead of all tests, in the processes that run them alone."""
    if not is_xdist_controller(session):
        importlib.import_module("amanda_tensorflow")  # it notes what TensorFlow forgets
        tf = importlib.import_module("tensorflow")
        # Routines that open scopes hold threads of TensorFlow's while others run what is in them.
        tf.config.threading.set_inter_op_parallelism_threads(4)


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Interpreter]:
    """Runs programs in processes of their own, in which TensorFlow has run nothing yet.

    Amanda was never imported there.
    """
    with contextlib.closing(Interpreter("tensorflow", path=sys.path)) as interpreter:
        yield interpreter


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    """Have what takes an ``interpreter`` run where one is, since that imports TensorFlow."""
    return Together(config, log, "interpreter")
