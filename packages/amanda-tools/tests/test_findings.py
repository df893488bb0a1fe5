"""What tools found, as data: rows, dicts, tables, files."""

import csv
import json
import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import asdict, dataclass, is_dataclass
from types import SimpleNamespace

import amanda
import pytest
from amanda_tools import Findings, Flops, Operators, Profile, Summary, Trace, read_trace
from amanda_tools.charts import bars
from amanda_tools.formats import save
from amanda_tools.pictures import Pictured


@dataclass
class Row:
    id: str
    calls: int
    share: float | None = None


class Found(Findings[Row]):
    row_type = Row

    def __init__(self, *rows):
        self._rows = rows

    def rows(self):
        return self._rows

    def found(self):
        return f"{len(self._rows)} <things>"


class Shown(Pictured[Row], Found):
    def charts(self):
        return [bars("Shares", {"share": {row.id: row.share for row in self.rows()}})]


@pytest.fixture
def tools(toy, tmp_path):
    """All tools, after an operator ran twice forward and once backward."""
    found = Flops(), Profile(), Trace(tmp_path / "found.jsonl")
    with amanda.apply(*found):
        toy.forward("a/conv", 100)
        toy.forward("a/conv", 300)
        toy.backward("a/conv", 40)
    return found


def test_every_tool_has_rows_of_plain_values(tools):
    plain = str, int, float, type(None), list
    for tool in tools:
        rows = tool.rows()
        assert rows
        for row in rows:
            assert is_dataclass(row)
            assert (row.id, row.type, row.scope)[1:] in {("conv", "a"), ("convBackward", "a")}
            assert all(isinstance(value, plain) for value in asdict(row).values())


def test_every_tool_gives_them_as_a_dict_that_json_takes(tools):
    flops, profile, trace = (json.loads(json.dumps(tool.to_dict())) for tool in tools)
    assert flops["operators"][0]["calls"] == 2
    assert flops["total"]["uncounted"] == {"conv": 2}
    assert profile["operators"][0]["forward"] == 400
    assert profile["total"]["executions"] == 3
    assert [row["duration"] for row in trace["executions"]] == [100, 300, 40]


def test_every_tool_says_what_it_holds(tools):
    flops, profile, trace = map(repr, tools)
    assert flops == ("<Flops: 0 forward, 0 backward, 0 parameters, in 2 calls of 1 operators>")
    assert profile == "<Profile: 440 ns in 3 executions>"
    assert re.fullmatch(r"<Trace: 3 executions in .*found\.jsonl>", trace)


def test_every_tool_is_empty_before_its_first_scope(tmp_path):
    trace = Trace(tmp_path / "found.jsonl")
    for tool in (Flops(), Profile(), Summary(), Operators()):
        assert tool.rows() == []
        assert tool.to_dict()[tool.rows_name] == []
        assert repr(tool).startswith(f"<{tool.name}: 0 ")
        assert tool._repr_html_().count("<tr>") == 1  # that of the names
        assert tool.report() is not None
    assert repr(trace).startswith("<Trace: 0 executions in ")
    assert not (tmp_path / "found.jsonl").exists()


def test_a_trace_says_within_the_scope_what_it_holds_by_then(toy, tmp_path):
    trace = Trace(tmp_path / "found.jsonl")
    with amanda.apply(trace):
        for number in (1, 2, 3):
            toy.forward("a/conv", 100)
            assert repr(trace).startswith(f"<Trace: {number} executions")
        assert len(trace.rows()) == 3


def test_every_tool_is_a_table_in_a_notebook(tools):
    for tool in tools:
        page = tool._repr_html_()
        assert page.startswith("<table>")
        assert page.count("<tr>") == 1 + len(tool.rows())
        assert "a/conv" in page


class TestOfTimes:
    def test_are_those_of_one_call(self, toy):
        profile = Profile()
        with amanda.apply(profile):
            for time in (100, 400, 250, 250):
                toy.forward("conv", time)
            toy.backward("conv", 30)
        (row,) = profile.rows()
        assert (row.calls, row.forward, row.mean, row.median) == (4, 1000, 250, 250)
        assert (row.least, row.most) == (100, 400)
        assert (row.backward_calls, row.backward, row.backward_median) == (1, 30, 30)

    def test_are_none_where_nothing_ran(self, toy):
        profile = Profile()
        with amanda.apply(profile):
            toy.backward("conv", 30)
        (row,) = profile.rows()
        assert (row.calls, row.forward, row.mean, row.median, row.least) == (0, 0, None, None, None)

    def test_leave_out_the_warm_up(self, toy):
        profile = Profile(warmup=1)
        with amanda.apply(profile):
            for time in (9000, 100, 200):
                toy.forward("conv", time)
                toy.backward("conv", 2 * time)
        (row,) = profile.rows()
        assert (row.calls, row.forward, row.most, row.backward) == (2, 300, 200, 600)
        assert row.warmup == 9000 + 18000
        assert profile.time == 900
        assert "27.0 µs of warm-up are not in it" in profile.report()[-1]

    def test_rank_the_slowest(self, toy):
        profile = Profile()
        with amanda.apply(profile):
            toy.forward("conv", 100)
            toy.forward("relu", 30)
            toy.backward("relu", 300)
            toy.forward("sum", 1)
        assert [row.id for row in profile.slowest(2)] == ["relu", "conv"]


class TestPandas:
    def test_is_given_a_row_for_each_and_the_fields_also_of_none(self, monkeypatch):
        made = SimpleNamespace(DataFrame=lambda rows, columns: (rows, columns))
        monkeypatch.setitem(sys.modules, "pandas", made)
        rows, columns = Found(Row("a", 1, 0.5)).to_pandas()
        assert rows == [{"id": "a", "calls": 1, "share": 0.5}]
        assert columns == ["id", "calls", "share"]
        assert Found().to_pandas() == ([], columns)

    def test_that_is_not_installed_is_named_with_what_needs_none(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ModuleNotFoundError, match=r"pip install pandas, or take rows\(\)"):
            Found().to_pandas()


class TestNotebook:
    def test_spells_out_what_a_browser_would_obey(self):
        page = Found(Row("<script>", 1))._repr_html_()
        assert "<script>" not in page
        assert "&lt;script&gt;" in page
        assert "2 <things>" not in page

    def test_shows_the_first_rows_of_many(self):
        page = Found(*(Row(f"row{i}", i) for i in range(250)))._repr_html_()
        assert page.count("<tr>") == 101
        assert "150 more rows" in page

    def test_shows_numbers_with_separators_and_nothing_for_none(self):
        page = Found(Row("a", 1234567))._repr_html_()
        assert "1,234,567" in page
        assert "None" not in page

    def test_shows_times_and_fractions_as_on_a_terminal(self, toy):
        with amanda.apply(profile := Profile()):
            toy.forward("a/conv", 1_250_000)
        assert ">1.25 ms</td>" in profile._repr_html_()
        assert ">0.03125</td>" in Found(Row("a", 0.03125))._repr_html_()

    def test_shows_the_beginning_of_a_list(self):
        page = Found(Row("a", [0.5] * 128))._repr_html_()
        assert "0.5, 0.5, 0.5, 0.5, ... (128)" in page


def run(tool, toy):
    with amanda.apply(tool):
        toy.forward('a"b/conv', 100, shape=(2, None))
        toy.backward('a"b/conv', 40)
    return tool


class TestFiles:
    @pytest.mark.parametrize("cls", [Flops, Trace])
    def test_that_end_in_json_hold_the_rows(self, toy, tmp_path, cls):
        path = tmp_path / "found.json"
        tool = run(cls(out=path), toy)
        written = json.loads(path.read_text())
        assert written == (tool.to_dict() if cls is Flops else tool.to_dict()["executions"])

    @pytest.mark.parametrize("cls", [Flops, Profile, Trace])
    def test_that_end_in_csv_hold_a_line_for_each_row(self, toy, tmp_path, cls):
        path = tmp_path / "found.CSV"
        tool = run(cls(out=path), toy)
        with path.open(newline="") as file:
            lines = list(csv.DictReader(file))
        rows = [asdict(row) for row in tool.rows()]
        assert [line.keys() for line in lines] == [row.keys() for row in rows]
        assert lines[0]["id"] == 'a"b/conv'
        for line, row in zip(lines, rows, strict=True):
            for name, value in row.items():
                text = "" if value is None else value if isinstance(value, str) else str(value)
                assert line[name] == text or json.loads(line[name]) == value

    @pytest.mark.parametrize("ending", ["jsonl", "json", "csv"])
    def test_of_a_trace_are_read_back(self, toy, tmp_path, ending):
        path = tmp_path / f"trace.{ending}"
        tool = run(Trace(path), toy)
        forward, backward = read_trace(path)
        assert (forward["id"], forward["duration"], forward["start"]) == ('a"b/conv', 100, 0)
        assert forward["input_shapes"] == [[2, None]]
        assert backward["input_shapes"] == [[2, 3], None]
        assert [asdict(row) for row in tool.rows()] == [forward, backward]

    @pytest.mark.parametrize("ending", ["json", "csv"])
    def test_of_a_trace_that_were_cut_off_have_the_rows_before(self, toy, tmp_path, ending):
        path = tmp_path / f"trace.{ending}"
        run(Trace(path), toy)
        whole = path.read_text()
        start = whole.rindex("\n", 0, whole.index("convBackward")) + 1
        for cut in range(start, whole.rindex("}" if ending == "json" else "]")):
            path.write_text(whole[:cut])
            assert [row["type"] for row in read_trace(path)] == ["conv"]

    @pytest.mark.parametrize("ending", ["jsonl", "json", "csv"])
    def test_of_nothing_are_a_trace_of_nothing(self, tmp_path, ending):
        path = tmp_path / f"trace.{ending}"
        Trace(path).open()
        assert list(read_trace(path)) == []

    @pytest.mark.parametrize("name", ["found", "found.txt", "found.xlsx", "found.json.gz"])
    @pytest.mark.parametrize(
        ("cls", "endings"),
        [
            (Flops, ".json or .csv"),
            (Profile, ".json or .csv"),
            (Trace, ".jsonl, .json or .csv"),
        ],
    )
    def test_that_end_in_something_else_are_refused(self, tmp_path, cls, endings, name):
        with pytest.raises(ValueError, match=f"{name}.*has to be {re.escape(endings)}"):
            cls(out=tmp_path / name)
        assert not (tmp_path / name).exists()

    @pytest.mark.parametrize("cls", [Flops, Profile, Trace])
    def test_are_nowhere_if_they_are_thrown_away(self, toy, cls):
        run(cls(out="/dev/null"), toy)


def test_a_picture_has_a_bar_for_each_row_also_of_what_is_infinite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(Shown(Row("half", 1, 2.0), Row("a<b", 1, 4.0), Row("inf", 1, float("inf"))), "found.svg")
    picture = ET.parse("found.svg")
    widths = [float(bar.get("width")) for bar in picture.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths[0] * 2 == widths[1] == widths[2]
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:3] == ["Shares", "half", "share: 2"]
    assert "a<b" in texts


def test_what_has_no_picture_is_saved_in_none():
    with pytest.raises(ValueError, match=r"\.json or \.csv"):
        save(Found(Row("one", 1)), "found.svg")
