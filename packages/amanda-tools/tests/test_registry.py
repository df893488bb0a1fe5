"""Tools by name: which there are, and how a line builds one."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import amanda
import click
import pytest
from amanda.testing.packages import install
from amanda_tools import Flops, Profile, Trace
from amanda_tools.registry import build, named_tools, options_of


class Sampler(amanda.Tool):
    """Takes options of all kinds.

    Args:
        count: how many.
        rate: how often,
            at most.
        mode: which way.
    """

    def __init__(
        self,
        count: int = 3,
        rate: float = 0.5,
        verbose: bool = False,
        out: Path | None = None,
        limit: int | None = 1,
        mode: Literal["fast", "exact"] = "fast",
        ops: Iterable[str] = (),
        widths: list[int] | None = None,
        plain="text",
        number=7,
    ):
        super().__init__()
        self.options = {name: value for name, value in locals().items() if name != "self"}


class Strict(amanda.Tool):
    def __init__(self, low: int):
        super().__init__()
        if low < 0:
            raise ValueError("low is negative")


def given(options):
    tool = build(f"{__name__}:Sampler:{options}")
    return {name: tool.options[name] for name in options_of_line(options)}


def options_of_line(options):
    return [part.partition("=")[0] for part in options.split(",") if "=" in part]


class TestLine:
    def test_of_a_name(self):
        assert isinstance(build("profile"), Profile)

    def test_of_a_name_with_an_option(self, tmp_path):
        assert isinstance(build(f"trace:out={tmp_path / 'trace.jsonl'}"), Trace)
        assert not (tmp_path / "trace.jsonl").exists()  # before all is known to be right

    def test_of_a_class(self):
        assert isinstance(build(f"{__name__}:Sampler"), Sampler)

    def test_of_a_class_with_an_option(self):
        assert build(f"{__name__}:Sampler:count=8").options["count"] == 8

    def test_of_a_class_in_the_folder_of_the_user(self, tmp_path, monkeypatch):
        (tmp_path / "tools_of_mine").mkdir()
        (tmp_path / "tools_of_mine" / "first.py").write_text(
            "import amanda\nclass Mine(amanda.Tool):\n    'A tool.'\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        assert build("tools_of_mine.first:Mine").name == "Mine"


class TestValue:
    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("count=8", 8),
            ("rate=1e-3", 1e-3),
            ("verbose=yes", True),
            ("verbose=false", False),
            ("out=a/b.txt", Path("a/b.txt")),
            ("limit=none", None),
            ("limit=5", 5),
            ("mode=exact", "exact"),
            ("ops=conv2d", ["conv2d"]),
            ("ops=conv2d,linear", ["conv2d", "linear"]),
            ("widths=1,2,3", [1, 2, 3]),
            ("plain=8", "8"),
            ("number=8", 8),
            ("plain=a=b", "a=b"),
            ("plain=C:\\x", "C:\\x"),
            ("plain=a,b", "a,b"),
        ],
    )
    def test_has_the_type_of_the_annotation_or_of_the_default(self, option, value):
        (result,) = given(option).values()
        assert (result, type(result)) == (value, type(value))

    def test_may_hold_commas_before_the_next_option(self):
        assert given("ops=conv2d,linear,count=2") == {"ops": ["conv2d", "linear"], "count": 2}


class TestMistake:
    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("prifle", "no tool 'prifle'; did you mean 'profile'?"),
            ("profile:uot=x", "profile has no option 'uot'; did you mean 'out'?"),
            ("profile:out", "option 'out' of profile has no value"),
            (f"{__name__}:Sampler:count=8,verbose", "count=8,verbose: '8,verbose' is not"),
            ("trace", "trace needs an option; trace:out=..."),
            ("no_such_module:Tool", "no module 'no_such_module'"),
            (f"{__name__}.nothing:Tool", "no module 'test_registry.nothing'"),
            (f"{__name__}:Smapler", "no tool 'Smapler' in test_registry; did you mean 'Sampler'?"),
            (f"{__name__}:Sampler:count=many", "count=many: 'many' is not a valid int"),
            (f"{__name__}:Sampler:mode=slow", "'slow' is none of fast, exact"),
            (f"{__name__}:Strict:low=-1", "Strict: low is negative"),
            (
                "trace:out=/no/such/folder/t.csv",
                "No such file or directory: '/no/such/folder/t.csv'",
            ),
            ("=x", "'=x' is no tool"),
            ("summary:depth=-3", "summary: depth is -3, and has to be 0 or more"),
            ("profile:warmup=-1", "profile: warmup is -1, and has to be 0 or more"),
            ("profile:out=a.csv,out=b.csv", "profile is given option 'out' more than once"),
            ("summary:depth=1,exact=yes,depth=1", "summary is given option 'depth' more than once"),
            ("flops:out=", "flops: the name of the file to write is empty"),
            ("profile:out=", "profile: the name of the file to write is empty"),
            ("trace:out=", "trace: the name of the file to write is empty"),
        ],
    )
    def test_is_told_with_the_way_out(self, line, message):
        with pytest.raises(click.UsageError) as caught:
            build(line)
        assert message in str(caught.value)

    def test_in_a_module_of_the_user_is_not_taken_for_a_missing_module(self, tmp_path, monkeypatch):
        (tmp_path / "broken_tools.py").write_text("import nothing_of_that_name\n")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(click.UsageError, match="No module named 'nothing_of_that_name'"):
            build("broken_tools:Tool")


class TestOptions:
    def test_are_explained_by_the_docstring(self):
        helps = {option.name: option.help for option in options_of(Sampler)}
        assert helps["count"] == "how many."
        assert helps["rate"] == "how often, at most."
        assert helps["verbose"] == ""

    def test_are_explained_in_as_many_lines_as_it_takes(self):
        class One(amanda.Tool):
            """A tool.

            Args:
                out: a file to write,
                    by its ending.

            Raises:
                OSError: it cannot be written.
            """

            def __init__(self, out):
                super().__init__()

        (option,) = options_of(One)
        assert option.help == "a file to write, by its ending."

    def test_of_every_named_tool_are_explained(self):
        for name in ("flops", "profile", "trace"):
            (entry,) = named_tools()[name]
            assert all(option.help for option in options_of(entry.load()))


def test_the_tools_of_this_package_have_names():
    assert {"flops", "profile", "trace"} <= set(named_tools())


class TestPackages:
    """Names come from packages that others made, whatever is in them."""

    @pytest.fixture
    def package(self, tmp_path, monkeypatch):
        """Installs a package that announces tools."""
        monkeypatch.syspath_prepend(tmp_path)

        def announcing(name, *announcements):
            install(tmp_path, name, entry_points="\n".join(("[amanda.tools]", *announcements)))

        yield announcing
        sys.modules.pop("plugin_that_fails", None)

    def test_with_one_name_for_two_tools_are_told_apart_by_the_user(self, package):
        package("one", "same = amanda_tools:Flops")
        package("two", "same = amanda_tools:Profile")
        with pytest.raises(click.UsageError) as caught:
            build("same")
        assert str(caught.value) == (
            "several tools are named 'same': amanda_tools:Flops of one and amanda_tools:Profile "
            "of two; write amanda_tools:Flops for the first"
        )
        assert isinstance(build("amanda_tools:Flops"), Flops)

    def test_with_one_name_for_one_tool_agree(self, package):
        package("one", "same = amanda_tools:Flops")
        package("two", "same = amanda_tools:Flops")
        assert isinstance(build("same"), Flops)

    @pytest.mark.parametrize(
        ("value", "source", "message"),
        [
            (
                "plugin_that_fails:T",
                "raise RuntimeError('no')",
                "cannot be loaded: RuntimeError: no",
            ),
            ("plugin_that_fails:T", "raise SystemExit(0)", "cannot be loaded: SystemExit: 0"),
            ("plugin_that_fails:T", "T = (", "cannot be loaded: SyntaxError"),
            ("plugin_that_fails:T", "", "cannot be loaded: AttributeError"),
            ("plugin_that_fails:T", "T = 1", "is no tool"),
            ("plugin_that_fails:T", "class T: pass", "is no tool"),
            ("plugin_that_is_not_there:T", "", "No module named 'plugin_that_is_not_there'"),
            ("%&", "", "cannot be loaded"),
        ],
    )
    def test_that_fail_are_a_line(self, package, tmp_path, in_process, value, source, message):
        (tmp_path / "plugin_that_fails.py").write_text(source)
        package("broken", f"broken = {value}")
        with pytest.raises(click.UsageError) as caught:
            build("broken")
        assert f"broken ({value} of broken)" in str(caught.value)
        assert message in str(caught.value)
        code, out, _ = in_process(tmp_path, "tools")
        assert code == 0
        assert f"broken ({value} of broken)" in out
        assert "flops" in out

    def test_whose_metadata_are_broken_are_left_out(self, package, tmp_path, in_process):
        package("broken", "neither name nor value")
        package("whole", "mine = amanda_tools:Flops")
        code, out, err = in_process(tmp_path, "tools")
        assert code == 0
        assert "what the package broken announces cannot be read" in err
        assert err.count("\n") == 1
        assert "mine" in out
        assert "flops" in out

    def test_names_are_no_markup_and_no_control_characters(self, package, tmp_path, in_process):
        package("odd", "[bold]x[/] = amanda_tools:Flops", "a\x1b[31mb = amanda_tools:Flops")
        code, out, _ = in_process(tmp_path, "tools")
        assert code == 0
        assert "[bold]x[/]" in out
        assert r"a\x1b[31mb" in out
