"""What `import amanda` costs, told by what it imports.

It may take 60 ms in a bare interpreter, most of it for `typing` and `dataclasses`.
"""

import json
import os
import subprocess
import sys

import amanda

CORE = os.path.dirname(os.path.dirname(amanda.__file__))
# Everything it may import that Python itself may not have, all of it small.
ALLOWED = {
    *("collections.abc", "contextlib", "copy", "dataclasses", "enum", "functools", "itertools"),
    *("operator", "threading", "types", "typing", "warnings", "weakref"),
}


def imported_by(statement):
    """The modules that a statement imports into a bare interpreter."""
    program = f"""
import sys
before = set(sys.modules)
{statement}
imported = sorted(set(sys.modules) - before)
import json
print(json.dumps(imported))
"""
    output = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={**os.environ, "PYTHONPATH": CORE},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return set(json.loads(output))


def test_it_imports_nothing_but_small_parts_of_the_standard_library():
    needed = imported_by(f"import __future__, {', '.join(ALLOWED)}")
    extra = imported_by("import amanda") - needed
    assert {name for name in extra if name.partition(".")[0] != "amanda"} == set()


def test_it_imports_no_framework_and_nothing_heavy():
    heavy = {
        *("torch", "tensorflow", "keras", "jax", "numpy"),
        *("asyncio", "logging", "json"),
        *("importlib.metadata", "pkgutil", "pathlib", "tempfile", "subprocess"),
    }
    assert heavy & imported_by("import amanda") == set()


def test_it_imports_no_package_of_the_suite():
    assert "amanda.testing" not in imported_by("import amanda")
