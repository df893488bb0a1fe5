"""The settings of a project: where they are found, what flags do to them, and odd files."""

import json
import sys

import click
import pytest
from amanda_tools.flops import Flops
from amanda_tools.registry import Request
from amanda_tools.settings import DEFAULT_DEPTH, settings_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

DEFAULT = (Request("flops", Flops, {}),)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder that the command runs in, and that is the whole of a project."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own(project):
    """Writes amanda.toml."""
    return (project / "amanda.toml").write_text


class TestFile:
    def test_is_a_table_of_pyproject(self, project):
        (project / "pyproject.toml").write_text(
            '[project]\nname = "x"\n[tool.amanda]\ntools = ["flops"]\nops = ["relu"]\ndepth = 4\n'
            "width = 50\n"
        )
        found = settings_of({})
        assert (found.tools, found.ops, found.depth, found.width) == (["flops"], ["relu"], 4, 50)

    def test_is_amanda_toml(self, own):
        own("depth = 4")
        assert settings_of({}).depth == 4

    def test_is_found_from_a_folder_below(self, project, own, monkeypatch):
        own("depth = 4")
        below = project / "a" / "b"
        below.mkdir(parents=True)
        monkeypatch.chdir(below)
        assert settings_of({}).depth == 4

    def test_is_not_looked_for_beyond_the_project(self, project, own, monkeypatch):
        own("depth = 4")
        inner = project / "inner"
        inner.mkdir()
        (inner / "pyproject.toml").write_text("[project]\n")
        monkeypatch.chdir(inner)
        assert settings_of({}).file is None
        assert settings_of({}).depth == DEFAULT_DEPTH

    def test_is_one_alone(self, project, own):
        own("depth = 4")
        (project / "pyproject.toml").write_text("[tool.amanda]\n")
        with pytest.raises(click.UsageError, match=r"settings in both .* keep one of them"):
            settings_of({})

    def test_of_another_tool_is_no_concern(self, project, own):
        (project / "pyproject.toml").write_text("[tool.other]\ndepth = 'x'\n")
        own("depth = 4")
        assert settings_of({}).depth == 4

    def test_is_not_there_in_a_folder_that_was_removed(self, project, monkeypatch):
        gone = project / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        assert settings_of({}).depth == DEFAULT_DEPTH


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        *(("tools", ("trace:out=x.jsonl",)), ("ops", ("conv2d",)), ("depth", 0), ("width", 99)),
        ("report", "new.html"),
    ],
)
def test_a_flag_replaces_the_setting_of_its_name_alone(own, flag, value):
    own('tools = ["flops"]\nops = ["relu"]\ndepth = 4\nwidth = 50\nreport = "old.html"\n')
    kept = settings_of({})._asdict()
    changed = settings_of({"tools": (), "ops": (), "depth": None, "width": None, flag: value})
    assert getattr(changed, flag) == value
    assert changed.origins[flag] == "the command line"
    for name in kept.keys() - {flag, "origins"}:
        assert getattr(changed, name) == kept[name]


class TestTools:
    def test_are_the_default_ones_where_none_are_named(self, own):
        own("tools = []")
        assert settings_of({}).requests(DEFAULT) is DEFAULT

    def test_are_those_of_the_project_with_their_options(self, own):
        own('tools = ["profile", "trace:out=t.jsonl"]')
        profile, trace = settings_of({}).requests(DEFAULT)
        assert (profile.label, trace.label, trace.out) == ("profile", "trace", "t.jsonl")

    def test_of_the_project_s_own_are_found_from_a_folder_below(self, project, own, monkeypatch):
        own('tools = ["beside_settings:Mine"]')
        (project / "beside_settings.py").write_text(
            "import amanda\nclass Mine(amanda.Tool): pass\n"
        )
        (project / "below").mkdir()
        monkeypatch.chdir(project / "below")
        monkeypatch.setattr(sys, "path", sys.path[:])
        (mine,) = settings_of({}).requests(DEFAULT)
        assert mine.cls.__name__ == "Mine"

    def test_that_are_wrong_are_told_with_the_file(self, own):
        own('tools = ["folps"]')
        with pytest.raises(click.UsageError, match=r"amanda\.toml: no tool 'folps'; did you mean"):
            settings_of({}).requests(DEFAULT)

    def test_that_are_wrong_on_the_command_line_are_told_without_it(self, own):
        own('tools = ["flops"]')
        with pytest.raises(click.UsageError, match=r"^no tool 'folps'"):
            settings_of({"tools": ("folps",)}).requests(DEFAULT)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("depth = ", "cannot be read: "),
        ("depth = 1\ndepth = 2", "cannot be read: "),
        ("dpeth = 1", "no setting 'dpeth'; did you mean 'depth'?"),
        ("[tools]\nflops = {}", "tools is a list of tools"),
        ('tools = "flops"', "tools is a list of tools"),
        ("tools = [1]", "tools is a list of tools"),
        ('tools = [""]', "tools is a list of tools"),
        ('ops = "relu"', "ops is a list of operator types"),
        ("ops = [['relu']]", "ops is a list of operator types"),
        ("depth = true", "depth is a whole number from 0 on, not True"),
        ("depth = -1", "depth is a whole number from 0 on, not -1"),
        ("depth = 1.5", "depth is a whole number from 0 on, not 1.5"),
        ("width = 19", "width is a whole number from 20 on, not 19"),
        ("width = 2026-11-30", "width is a whole number"),
        ('report = ""', "report is a file"),
        ("report = true", "report is a file"),
    ],
)
def test_what_is_no_setting_is_told_in_one_line_with_the_file(project, in_process, text, message):
    (project / "amanda.toml").write_text(text)
    (project / "ran.py").write_text("print('ran')")
    code, out, shown = in_process(project, "run", "ran.py")
    assert (code, out) == (2, "")
    assert shown.count("\n") == 1
    assert shown.startswith(f"amanda: {project / 'amanda.toml'}")
    assert message in shown


def test_a_table_of_pyproject_that_is_none_is_told(project):
    (project / "pyproject.toml").write_text("tool.amanda = 3")
    with pytest.raises(click.UsageError, match=r"write \[tool\.amanda\]"):
        settings_of({})


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 99) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
names = st.sampled_from(["tools", "ops", "depth", "width", "[tool", "other"])
tables = st.dictionaries(names, values, max_size=2).map(
    lambda table: "\n".join(f"{name} = {json.dumps(value)}" for name, value in table.items())
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.one_of(tables.map(str.encode), st.binary(max_size=12)))
def test_any_file_gives_settings_or_is_refused_by_its_name(project, data):
    (project / "amanda.toml").write_bytes(data)
    refused = ""
    try:
        found = settings_of({})
    except click.UsageError as error:
        refused = error.message
    if refused:
        assert str(project / "amanda.toml") in refused
        return
    assert all(isinstance(name, str) for name in (*found.tools, *found.ops))
    assert found.depth >= 0


def test_what_nests_too_deep_is_refused(own):
    own("ops = " + "[" * 20_000)
    with pytest.raises(click.UsageError, match="cannot be read"):
        settings_of({})


def test_a_script_runs_under_the_project_s_tools_without_flags(project, own, in_process):
    own('tools = ["trace:out=t.jsonl"]')
    (project / "train.py").write_text("print('ran')")
    code, out, shown = in_process(project, "run", "train.py")
    assert (code, out) == (0, "ran\n")
    assert (project / "t.jsonl").exists()
    assert "from the defaults" not in shown


def test_verbose_tells_what_applies_and_where_it_comes_from(project, own, in_process):
    own('tools = ["trace:out=t.jsonl"]\ndepth = 4')
    (project / "train.py").write_text("")
    _, _, shown = in_process(project, "run", "--verbose", "--depth", "3", "train.py")
    file = project / "amanda.toml"
    assert shown.splitlines()[:6] == [
        f"amanda: the project's settings: {file}",
        f'amanda: tools = ["trace:out=t.jsonl"], from {file}',
        "amanda: ops = all, from the defaults",
        "amanda: depth = 3, from the command line",
        "amanda: width = as the terminal, from the defaults",
        "amanda: report = none, from the defaults",
    ]
