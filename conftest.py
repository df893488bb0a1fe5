"""What the tests of all packages share."""

from __future__ import annotations

import gc
import sys

import pytest
from amanda.driving import Ids


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over what test modules imported.

    A framework's million objects live as long as the process. Without this, every collection,
    those that tests ask for included, would walk them again, which took most of the time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _free_ids() -> None:
    """Models of other tests may still live, but what they are called is free again."""
    if module := sys.modules.get("amanda_torch.driver"):
        module.driver.identity.contexts.numbering.operators = Ids()
