"""What `import amanda` costs, told by what it imports.

It may take 60 ms in a bare interpreter, most of it for `typing` and `dataclasses`.
"""

import json
import os
import subprocess
import sys

import pytest

# Everything it may import that Python itself may not have, all of it small.
ALLOWED = {
    *("collections.abc", "contextlib", "copy", "dataclasses", "enum", "fnmatch", "functools"),
    *("itertools", "operator", "threading", "os", "types", "typing", "warnings", "weakref"),
}


PROGRAM = """
import sys
before = set(sys.modules)
{statement}
imported = sorted(set(sys.modules) - before)
import json
print(json.dumps(imported))
"""


@pytest.fixture
def imported_by(core_alone):
    """Tells the modules that a statement imports into a bare interpreter."""

    def imported(statement):
        output = subprocess.run(
            [sys.executable, "-S", "-c", PROGRAM.format(statement=statement)],
            env={**os.environ, "PYTHONPATH": core_alone},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        return set(json.loads(output))

    return imported


def test_it_imports_nothing_but_small_parts_of_the_standard_library(imported_by):
    needed = imported_by(f"import __future__, {', '.join(ALLOWED)}")
    extra = imported_by("import amanda") - needed
    assert {name for name in extra if name.partition(".")[0] != "amanda"} == set()


def test_it_imports_no_framework_and_nothing_heavy(imported_by):
    heavy = {
        *("torch", "tensorflow", "keras", "jax", "numpy"),
        *("asyncio", "logging", "json"),
        *("importlib.metadata", "pkgutil", "pathlib", "tempfile", "subprocess"),
    }
    assert heavy & imported_by("import amanda") == set()


def test_it_imports_no_package_of_the_suite(imported_by):
    assert "amanda.testing" not in imported_by("import amanda")
