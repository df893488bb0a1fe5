"""What ``amanda new-tool`` writes, and the names that it refuses."""

import re

import pytest
from amanda.testing.packages import install

pytest_plugins = "pytester"  # runs pytest within this process, which has a framework loaded


def test_its_test_passes_as_it_is(pytester, in_process):
    code, shown, _ = in_process(pytester.path, "new-tool", "count-conv")
    assert code == 0
    assert "python -m pytest" in shown
    done = pytester.runpytest_inprocess("--rootdir", "count-conv", "count-conv")
    done.assert_outcomes(passed=2)


def test_its_entry_point_names_it_for_the_command(tmp_path, in_process, monkeypatch):
    in_process(tmp_path, "new-tool", "count-pool")
    home = tmp_path / "count-pool"
    (announced,) = re.findall(
        r'\[project\.entry-points\."amanda\.tools"\]\n(\w+) = "([\w:]+)"',
        (home / "pyproject.toml").read_text(),
    )
    assert announced == ("count_pool", "count_pool:CountPool")
    install(home, "count-pool", entry_points=f"[amanda.tools]\n{' = '.join(announced)}\n")
    monkeypatch.syspath_prepend(home)
    (home / "toys.py").write_text(
        "import torch\nrelu = torch.nn.ReLU()\n[relu(torch.ones(2)) for _ in range(3)]\n"
    )
    code, _, shown = in_process(home, "run", "--tool", "count_pool:types=relu", "toys.py")
    assert code == 0, shown
    assert re.search(r"relu +3\n", shown)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CountConv", "small letters, digits and dashes"),
        ("", "small letters, digits and dashes"),
        ("../up", "small letters, digits and dashes"),
        ("two--dashes", "small letters, digits and dashes"),
        ("a b", "small letters, digits and dashes"),
        ("class", "means something to Python already"),
        ("json", "means something to Python already"),
        ("torch", "means something to Python already"),
        ("flops", "there is a tool 'flops' already"),
        ("tile-wise", "there is a tool 'tile_wise' already"),
        ("taken", "there is 'taken' already"),
    ],
)
def test_a_name_that_cannot_be_one_is_refused_in_one_line(tmp_path, in_process, name, message):
    (tmp_path / "taken").write_text("mine")
    code, out, shown = in_process(tmp_path, "new-tool", name)
    assert (code, out) == (2, "")
    assert shown.count("\n") == 1
    assert message in shown
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_without_a_framework_it_tells_to_install_one(tmp_path, in_process, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, shown = in_process(tmp_path, "new-tool", "count-conv")
    assert code == 2
    assert "none is installed" in shown
