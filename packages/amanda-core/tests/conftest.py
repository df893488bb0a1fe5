"""Has the NumPy driver registered, and core to be found without what is installed beside it."""

from pathlib import Path

import amanda
import numpy_backend.adapter  # noqa: F401
import pytest


@pytest.fixture(scope="session")
def core_alone(tmp_path_factory):
    """A folder that holds core and nothing else, for the path of another process."""
    folder = tmp_path_factory.mktemp("core")
    (folder / "amanda").symlink_to(Path(amanda.__file__).parent)
    return str(folder)
