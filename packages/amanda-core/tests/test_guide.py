"""Every snippet of the guide for drivers is executed.

What is quoted from the tutorial drivers is their code word for word, which the conformance suite
executes; the rest is executed here.
"""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
GUIDE = (TESTS.parent / "docs" / "writing-a-driver.md").read_text()
QUOTED = {path.name: path.read_text() for path in (TESTS / "numpy_backend").glob("*.py")}


def snippets(language):
    return [
        pytest.param(s, id=s.split("\n")[0])
        for s in re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    ]


def unindented(text):
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def is_quoted(snippet):
    return any(unindented(snippet) in unindented(source) for source in QUOTED.values())


@pytest.mark.parametrize("snippet", snippets("python"))
def test_python(snippet):
    if snippet.startswith("from "):
        exec(snippet, {})
    else:
        assert is_quoted(snippet)


def test_most_are_quoted_from_each_driver():
    quoted = [s.values[0] for s in snippets("python") if is_quoted(s.values[0])]
    for file in ("driver.py", "staging_driver.py"):
        assert any(unindented(s) in unindented(QUOTED[file]) for s in quoted)


def test_what_a_package_declares_has_its_driver_found_and_its_versions_known(tmp_path):
    (entry, extra) = (s.values[0] for s in snippets("toml"))
    (name, value), (requirement,) = (
        re.search(r'^(\w+) = "(.*)"$', entry, re.MULTILINE).groups(),
        re.search(r'^tested = \["(.*)"\]$', extra, re.MULTILINE).groups(),
    )
    assert entry.startswith('[project.entry-points."amanda.drivers"]')
    assert extra.startswith("[project.optional-dependencies]")
    (tmp_path / "amanda_numpy_backend.py").write_text("from numpy_backend.driver import driver\n")
    info = tmp_path / "amanda_numpy_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: amanda-numpy-backend\nVersion: 1.0\nProvides-Extra: tested\n"
        f"Requires-Dist: {requirement}; extra == 'tested'\n"
    )
    (info / "entry_points.txt").write_text(f"[amanda.drivers]\n{name} = {value}\n")
    program = f"""
        import sys
        sys.path[:0] = {[str(tmp_path), str(TESTS)]}
        import amanda, numpy_backend.framework
        from amanda.driving import known_drivers, versions_tested
        assert known_drivers() == []
        with amanda.apply(amanda.Tool()):
            (driver,) = [d for d in known_drivers() if d.backend == "numpy"]
        print(versions_tested("amanda-numpy-backend"))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == requirement
