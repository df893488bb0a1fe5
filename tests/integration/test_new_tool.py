"""The test that ``amanda new-tool`` writes for each framework, on both in one environment."""

import runpy
import sys

import pytest
from amanda_tools.new_tool import FRAMEWORKS, write_new_tool


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_it_passes_as_it_is(framework, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"count-on-{framework}"
    write_new_tool(name, framework)
    monkeypatch.syspath_prepend(tmp_path / name)
    module = name.replace("-", "_")
    written = runpy.run_path(str(tmp_path / name / f"test_{module}.py"))
    monkeypatch.delitem(sys.modules, module)
    tests = [value for name, value in written.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()
