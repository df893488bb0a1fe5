"""What the command shows at the end, whatever a tool, a name or the standard error is like."""

import io
import sys

import amanda
import pytest
from amanda_tools import Column, Place
from amanda_tools.results import Results
from rich.table import Table


class Shows(amanda.Tool):
    """Shows what it is given; an error is raised."""

    def __init__(self, report=None, columns=()):
        super().__init__()
        self._report = report
        self._columns = columns

    def report(self):
        return _raised(self._report)

    def columns(self):
        return _raised(self._columns)


def _raised(value):
    if isinstance(value, BaseException):
        raise value
    return value


def results(*tools, depth=2):
    results = Results()
    results.show(tools, depth)
    return results


def column(title, **values):
    by_place = {Place(id, id, id.replace("_", ".")): value for id, value in values.items()}
    return Column(title, by_place)


FINE = Shows("all is well", [column("Fine", a_b=1)])


class TestFailure:
    @pytest.mark.parametrize(
        "failing",
        [
            Shows(RuntimeError("no")),
            Shows(SystemExit(0)),
            Shows(columns=RuntimeError("no")),
            Shows(columns=[1]),
            Shows(columns=1),
            Shows(columns=[Column("X", {"a": 1})]),
            Shows(columns=[Column("X", {Place("a", "a", "a"): "1"})]),
            Shows(columns=[Column("X", {}, "parsecs")]),
            Shows(RuntimeError("\x1b[31m")),
        ],
    )
    def test_of_a_tool_is_one_line_and_leaves_the_others(self, capsys, failing):
        assert results(failing, FINE).tools_failed
        shown = capsys.readouterr().err
        assert shown.count("amanda: Shows cannot") == 1
        assert "Traceback" not in shown
        assert "Fine" in shown
        assert "all is well" in shown

    def test_without_any_is_none(self, capsys):
        assert not results(FINE).tools_failed
        assert "amanda:" not in capsys.readouterr().err

    def test_of_what_rich_prints_is_one_line(self, capsys):
        class Unprintable:
            def __rich_console__(self, console, options):
                raise RuntimeError("no")

        assert results(Shows(Unprintable()), FINE).tools_failed
        shown = capsys.readouterr().err
        assert "amanda: Shows cannot report: RuntimeError: no" in shown
        assert "all is well" in shown


class TestTerminal:
    def test_gets_no_control_characters_of_names(self, capsys):
        evil = "a\x1b]0;title\x07\x9b31m\u202e\r"
        table = Table("cell\x1b[31m")
        place = Place(f"{evil}/{evil}", evil, evil)
        results(Shows(evil, [Column("N", {place: 1})]), Shows(table))
        shown = capsys.readouterr().err
        assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(shown)
        assert shown.count(r"a\x1b]0;title\x07\x9b31m\u202e\r") == 3  # module, type, report
        assert r"cell\x1b[31m" in shown

    def test_that_is_none_gets_labels_as_they_are(self, capsys):
        label = "a_module_with_a_name_that_no_terminal_is_wide_enough_for" * 3
        place = Place(f"x.{label}/op", "op", f"x.{label}")
        others = Place("x.y/op", "op", "x.y")
        results(Shows(columns=[Column("N", {place: 1, others: 1})]))
        assert label in capsys.readouterr().err


class TestStandardError:
    @pytest.mark.parametrize("stream", [None, object()])
    def test_that_is_no_stream_gets_nothing(self, monkeypatch, stream):
        monkeypatch.setattr(sys, "stderr", stream)
        assert not results(FINE).tools_failed

    def test_that_is_closed_gets_nothing(self, monkeypatch):
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        sys.stderr.close()
        assert not results(FINE).tools_failed

    def test_whose_characters_are_few_gets_those(self, monkeypatch):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "stderr", stream)
        assert not results(Shows("12 µs", [column("N", a=1)])).tools_failed
        assert rb"12 \xb5s" in stream.buffer.getvalue()


def test_of_very_deep_modules_are_shown(capsys):
    deep = Place("op", "op", ".".join("abc" * 1000))
    assert not results(Shows(columns=[Column("N", {deep: 1})]), depth=10**6).tools_failed
    assert "total" in capsys.readouterr().err
