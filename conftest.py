"""What the tests of all packages share."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over what test modules imported.

    A framework's million objects live as long as the process. Without this, every collection,
    those that tests ask for included, would walk them again, which took most of the time.
    """
    gc.collect()
    gc.freeze()
