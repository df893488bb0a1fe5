"""What the tests share: a process in which TensorFlow is imported, and no more."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import amanda_tensorflow  # noqa: F401  (it notes what TensorFlow forgets, from now on)
import pytest
import tensorflow as tf
from forks import Interpreter

if TYPE_CHECKING:
    from collections.abc import Iterator

# Routines that open scopes hold threads of TensorFlow's while others run what is in them.
tf.config.threading.set_inter_op_parallelism_threads(4)


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Interpreter]:
    """Runs programs in processes of their own, in which TensorFlow has run nothing yet.

    Amanda was never imported there.
    """
    with contextlib.closing(Interpreter("tensorflow", path=sys.path)) as interpreter:
        yield interpreter
