"""What a page is told of tools, and of files; what a browser makes of it is in tests/browser."""

import html.parser
import json
import re
import sys
from dataclasses import dataclass

import amanda
import pytest
import torch
from amanda_tools import Column, Findings, Flops, Place, Profile, write_report
from amanda_tools.execution import Execution, Kind, Tensors
from amanda_tools.html_report import Contents, Timeline, contents_of_files, page_of
from amanda_tools.html_report import timeline as timelines
from amanda_tools.html_report.contents import Section
from amanda_tools.html_report.parts import parts_of, table_part
from amanda_tools.results import Results
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

MARKUP = "</script><b>&\u2028\ud800"
PROGRAM = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
for _ in range(3):
    model(torch.ones(5, 4)).sum().backward()
"""


# As findings, but for rows that are of no operator.
LIKE_FINDINGS = {
    "operators": [{"flops": 1}],
    "merge": {"tool": "Flops", "rows": "operators"},
    "show": {"sums": {"flops": "FLOPs"}},
}


@dataclass
class Row:
    """A row of what a tool found."""

    id: str


class Shows(amanda.Tool):
    """Shows what it is given."""

    def __init__(self, columns=(), parts=None):
        super().__init__()
        self._columns = columns
        self._parts = parts

    def columns(self):
        return self._columns

    def report(self):
        return self._parts


def contents_of(*tools):
    results = Results(silent=True)
    results.show(tools, 0)
    contents = Contents("train.py")
    contents.add(results.contributions)
    return contents


def data_in(page):
    """What the page's script is given."""
    text = page if isinstance(page, str) else page.decode()
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def values_in(data, title):
    """The numbers of a column by operator."""
    index = [column["title"] for column in data["columns"]].index(title)
    operators = data["operators"]
    return dict(zip(operators["id"], operators["values"][index], strict=True))


def path_in(data, id):
    """The modules around an operator."""
    names, at = [], data["operators"]["module"][data["operators"]["id"].index(id)]
    while at:
        names.insert(0, data["modules"][at][0])
        at = data["modules"][at][1]
    return names


def execution(id, start, duration, direction="forward"):
    scope, _, type = id.rpartition("/")
    place, nothing = Place(id, type, scope), Tensors([], [])
    kind = Kind(place, place, direction, None, nothing, nothing)
    return Execution(kind, 0, start, duration, duration, 0, None, None)


class TestOperators:
    def test_have_the_numbers_of_all_tools_and_the_modules_around_them(self):
        place, other = Place("a.b/conv", "conv", "a.b"), Place("a/add", "add", "a")
        one = Shows([Column("N", {place: 2, other: 3}), Column("Size", {other: 2048}, "bytes")])
        data = contents_of(one, Shows([Column("Share", {place: 0.25}, "share")])).to_dict()
        assert values_in(data, "N") == {"a.b/conv": 2, "a/add": 3}
        assert values_in(data, "Share") == {"a.b/conv": 0.25, "a/add": 0}
        assert [column["unit"] for column in data["columns"]] == ["count", "bytes", "share"]
        assert path_in(data, "a.b/conv") == ["a", "b"]
        assert path_in(data, "a/add") == ["a"]

    def test_that_are_no_part_of_a_model_stand_apart_by_their_purpose(self):
        loading = Place("a/load", "load", "a", purpose="data")
        data = contents_of(Shows([Column("N", {loading: 1})])).to_dict()
        assert path_in(data, "a/load") == ["(data loading)"]

    def test_have_their_line_of_the_program_and_its_code_if_it_may_be_read(self, tmp_path):
        script = tmp_path / "script.py"
        script.write_text("first\n  second  \n")
        contents = contents_of(Shows([Column("N", {Place("a", "a", ""): 1})]))
        contents.sources["a"] = f"{script}:2"
        assert contents.to_dict()["lines"] == [[f"{script}:2", ""]]
        contents.reads_code = True
        assert contents.to_dict()["lines"] == [[f"{script}:2", "second"]]

    def test_of_a_run_are_those_that_ran(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
        tools, x = (Flops(), Profile()), torch.ones(5, 4)
        with amanda.apply(*tools):
            model(x).sum().backward()
        data = contents_of(*tools).to_dict()
        assert list(values_in(data, "FLOPs").values()) == [320, 0, 0]
        assert all(values_in(data, "Forward").values())
        here = data["lines"][data["operators"]["line"][0]][0]
        assert re.search(r"test_html_report\.py:\d+$", here)


class TestSection:
    def test_has_texts_and_tables_of_whatever_rich_prints(self):
        table = Table("Layer", "Zeros", title="Before", caption="1,234 in all")
        table.add_row("[bold]conv[/bold]", Text("1,234"))
        texts, cells, terminal = [
            parts_of(part) for part in ("12% [x]", table, Panel("in a box", width=20))
        ]
        assert texts == [{"kind": "text", "text": "12% [x]"}]
        assert cells[0]["titles"] == ["Layer", "Zeros"]
        assert cells[0]["caption"] == "Before"
        assert cells[1]["text"] == "1,234 in all"
        assert cells[0]["rows"] == [["conv", "1,234"]]
        assert terminal[0]["kind"] == "terminal"
        assert "in a box" in terminal[0]["text"]

    def test_has_the_tables_that_a_renderable_is_made_of(self):
        profile = Profile()
        profile.add(execution("a/conv", 0, 1500))
        (table,) = parts_of(profile.report()[0])
        assert table["titles"][:2] == ["Slowest", "Total"]
        assert table["rows"][0][:2] == ["a/conv", "1.50 µs"]

    def test_has_rows_with_their_units(self):
        profile = Profile()
        profile.add(execution("a/conv", 0, 1500))
        rows = contents_of(profile).sections[0].rows
        assert rows["rows"][0][rows["titles"].index("forward")] == 1500
        assert rows["units"][rows["titles"].index("forward")] == "nanoseconds"

    def test_has_lists_as_short_as_one_can_read(self):
        part = table_part(["scales"], [[[0.123456789] * 40], [[1, 2]], ["x" * 1000]], 3, {})
        numbers, few, text = (row[0] for row in part["rows"])
        assert numbers.startswith("[0.1235, 0.1235, ")
        assert len(numbers) < 110
        assert few == "[1, 2]"
        assert len(text) == 301

    def test_has_as_many_rows_as_a_page_can_show(self, monkeypatch):
        monkeypatch.setattr("amanda_tools.html_report.parts._MOST", 2)
        profile = Profile()
        for id in "abc":
            profile.add(execution(id, 0, 1))
        rows = contents_of(profile).sections[0].rows
        assert (len(rows["rows"]), rows["of"]) == (2, 3)

    @pytest.mark.parametrize("failing", ["rows", "found", "to_svg"])
    def test_says_what_a_tool_cannot_tell(self, failing):
        class Fails(amanda.Tool, Findings):
            row_type = Row

            def rows(self):
                return [Row("a")]

            def found(self):
                return ""

            def to_svg(self):
                return ""

            def report(self):
                return "all is well"

        def fail(self):
            raise RuntimeError("no")

        tool = type("Failing", (Fails,), {failing: fail})()
        texts = [part["text"] for part in contents_of(tool).sections[0].parts]
        assert texts[0] == "all is well"
        assert any("cannot be shown: RuntimeError: no" in text for text in texts[1:])


class TestPage:
    def test_has_names_with_markup_as_text(self):
        place = Place(MARKUP, MARKUP, MARKUP)
        contents = contents_of(Shows([Column(MARKUP, {place: 1})], MARKUP))
        contents.title = contents.sections[0].title = MARKUP
        page = page_of(contents).decode()
        assert data_in(page)["operators"]["type"] == [r"</script><b>&\u2028\ud800"]
        assert page.count("<b>") == 0
        assert page.count("<script") == 3  # the data, Vega and its own

    def test_names_nothing_to_load(self):
        class Addresses(html.parser.HTMLParser):
            found: list = []

            def handle_starttag(self, tag, attributes):
                self.found += [v for k, v in attributes if k in ("src", "href") and v[0] != "#"]

        parser = Addresses()
        parser.feed(page_of(contents_of(Shows(parts="text"))).decode())
        assert parser.found == ["data:,"]

    def test_has_the_library_of_charts_where_it_has_a_chart(self):
        numbers = Shows([Column("N", {Place("a", "a", ""): 1})])
        assert len(page_of(contents_of(numbers))) > 800_000
        assert len(page_of(contents_of(Shows(parts="text")))) < 100_000

    def test_has_no_flame_graph_of_shares_alone_which_do_not_add_up(self):
        shares = Shows([Column("Density", {Place("a", "a", ""): 0.5}, "share")])
        page = page_of(contents_of(shares))
        assert b'id="flame"' not in page
        assert len(page) < 100_000

    def test_of_nothing_says_so(self):
        page = page_of(Contents("train.py")).decode()
        assert "No tool has found anything" in page
        assert data_in(page)["timelines"] == []

    def test_of_tools_that_saw_nothing_has_their_sections(self, tmp_path):
        path = tmp_path / "report.html"
        write_report(path, Flops(), Profile(), title="nothing ran")
        data = data_in(path.read_bytes())
        assert len(data["sections"]) == 2
        assert data["operators"]["id"] == []

    def test_says_of_a_tool_whose_findings_are_partial(self):
        section = Section("Flops", partial=f"ended by {MARKUP}")
        page = page_of(Contents("train.py", sections=[section])).decode()
        assert "This is not all that there was to find: ended by &lt;/script&gt;" in page

    def test_has_numbers_that_json_has_none_of_as_text(self):
        nan = Shows([Column("N", {Place("a", "a", ""): float("nan")})])
        assert values_in(data_in(page_of(contents_of(nan))), "N") == {"a": 0}


class TestFlameGraphs:
    def test_are_of_forward_and_backward_together_and_of_times_first(self):
        place = Place("a", "a", "")
        units = {
            "FLOPs": "count",
            "Backward FLOPs": "count",
            "Params": "count",
            "Forward": "nanoseconds",
            "Backward": "nanoseconds",
            "Share": "share",
        }
        tool = Shows([Column(title, {place: 1}, unit) for title, unit in units.items()])
        assert contents_of(tool).to_dict()["flames"] == {
            "choices": [
                ["FLOPs, forward and backward", ["Forward", 0], ["Backward", 1]],
                ["Params", ["Params", 2]],
                ["Time, forward and backward", ["Forward", 3], ["Backward", 4]],
            ],
            "first": 2,
        }


class TestTimeline:
    def test_has_executions_by_their_start_in_lanes(self):
        timeline = Timeline("run")
        timeline.add(execution("b", 1500, 10), 1)
        timeline.add(execution("a", 1000, 900), 1)
        timeline.add(execution("b", 3000, 10, "backward"), 2)
        timeline.add(execution("b", 3500, 10), 3)
        data = timeline.to_dict()
        assert data["start"] == [0, 500, 1500, 500]
        assert data["duration"] == [900, 10, 10, 10]
        assert [data["kinds"][kind][1] for kind in data["kind"]] == ["a", "b", "b", "b"]
        assert [data["lanes"][lane] for lane in data["lane"]] == [
            *("forward", "forward", "backward", "forward, thread 2")
        ]

    def test_has_the_steps_of_the_run(self):
        timeline = Timeline("run")
        for start in (100, 200):
            timeline.add(execution("a/conv", start, 10))
        assert timeline.to_dict()["steps"] == [[0, 10, 10, 0], [100, 110, 10, 0]]

    def test_has_how_long_a_step_was_in_operators_once(self):
        timeline = Timeline("run")
        timeline.add(execution("a/inner", 0, 20))
        timeline.add(execution("a", 0, 50))
        timeline.add(execution("b", 60, 30, "backward"), 2)
        timeline.add(execution("b", 65, 35), 1)  # runs again, while the backward execution does
        assert timeline.to_dict()["steps"] == [[0, 100, 70, 30]]

    def test_keeps_as_many_as_a_page_can_show(self, monkeypatch):
        monkeypatch.setattr(timelines, "MOST", 2)
        timeline = Timeline("run")
        for start in range(5):
            timeline.add(execution("a", start, 1))
        data = timeline.to_dict()
        assert (len(data["start"]), data["left_out"]) == (2, 3)


@pytest.fixture(scope="module")
def written(tmp_path_factory, in_process):
    """A folder with what tools wrote of a run."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "train.py").write_text(PROGRAM)
    tools = ("flops:out=flops.json", "profile:out=profile.json", "trace:out=trace.jsonl")
    chosen = [word for tool in tools for word in ("--tool", tool)]
    code, _, said = in_process(folder, "run", "--report", "run.html", *chosen, "train.py")
    assert code == 0, said
    assert "report: " in said
    return folder


class TestRun:
    def test_has_the_operators_the_timeline_and_each_tool(self, written):
        data = data_in((written / "run.html").read_bytes())
        assert sum(values_in(data, "FLOPs").values()) == 3 * (320 + 160)
        assert len(data["timelines"][0]["steps"]) == 3
        assert len(data["sections"]) == 3
        codes = [code for _, code in data["lines"]]
        assert "model(torch.ones(5, 4)).sum().backward()" in codes

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--report", "report.txt"), "has to be .html or .htm"),
            (("--report", "missing/report.html"), "No such file"),
            (("--report", "x.html", "--tool", "trace:out=x.html"), "cannot both write"),
        ],
    )
    def test_refuses_a_file_before_anything_runs(self, tmp_path, in_process, options, said):
        (tmp_path / "train.py").write_text("print('ran')")
        code, out, err = in_process(tmp_path, "run", *options, "train.py")
        assert code == 2
        assert said in err
        assert "ran" not in out

    @pytest.mark.parametrize("package", ["jinja2", "vl_convert"])
    def test_needs_packages_and_says_so_before_anything_runs(
        self, tmp_path, in_process, monkeypatch, package
    ):
        monkeypatch.setitem(sys.modules, package, None)
        (tmp_path / "train.py").write_text("print('ran')")
        code, out, err = in_process(tmp_path, "run", "--report", "report.html", "train.py")
        assert code == 2
        assert f"needs {package.replace('_', '-')}" in err
        assert "pip install 'amanda-tools[report]'" in err
        assert "ran" not in out
        assert not (tmp_path / "report.html").exists()

    def test_is_written_where_the_settings_of_the_project_say(self, tmp_path, in_process):
        (tmp_path / "amanda.toml").write_text('report = "page.html"')
        (tmp_path / "train.py").write_text(PROGRAM)
        code, _, _ = in_process(tmp_path, "run", "train.py")
        assert code == 0
        assert data_in((tmp_path / "page.html").read_bytes())["operators"]["id"]

    def test_records_no_times_where_no_tool_measures_any(self, tmp_path, in_process):
        (tmp_path / "train.py").write_text(PROGRAM)
        in_process(tmp_path, "run", "--report", "report.html", "--tool", "ops", "train.py")
        assert data_in((tmp_path / "report.html").read_bytes())["timelines"] == []


class TestFiles:
    @pytest.mark.parametrize("name", ["trace.jsonl", "profile.json"])
    def test_give_the_times_that_the_run_had(self, written, name):
        of_run = data_in((written / "run.html").read_bytes())
        of_file = contents_of_files([str(written / name)]).to_dict()
        for title in ("Forward", "Backward"):
            expected = values_in(of_run, title)
            found = values_in(of_file, title)
            known = [id for id in found if found[id]]
            assert known
            assert [found[id] for id in known] == [expected[id] for id in known]
        assert len(of_file["timelines"][0]["steps"]) == 3

    def test_together_are_one_table_by_operator(self, written):
        names = ("flops.json", "trace.jsonl", "profile.json")
        data = contents_of_files([str(written / name) for name in names]).to_dict()
        ids = data["operators"]["id"]
        assert len(ids) == len(set(ids))
        flops, times = values_in(data, "FLOPs"), values_in(data, "Forward")
        assert sum(flops.values()) == 3 * (320 + 160)
        assert all(times[id] for id in ids if flops[id])
        assert [t["name"] for t in data["timelines"]] == ["trace.jsonl", "profile.json"]

    def test_leave_out_of_an_execution_what_ran_inside_of_it(self, tmp_path):
        path = tmp_path / "trace.jsonl"
        row = {"type": "t", "scope": "", "source": None, "direction": "forward", "iteration": 0}
        row |= {f"{of}_{what}": [] for of in ("input", "output") for what in ("shapes", "dtypes")}
        inner = {"id": "inner", "operator": "inner", "start": 10, "duration": 30}
        outer = {"id": "outer", "operator": "outer", "start": 0, "duration": 100}
        path.write_text("".join(json.dumps(each | row) + "\n" for each in (inner, outer)))
        data = contents_of_files([str(path)]).to_dict()
        assert values_in(data, "Forward") == {"inner": 30, "outer": 70}

    def test_are_read_by_the_command(self, written, in_process):
        code, out, _ = in_process(written, "report", "flops.json", "trace.jsonl")
        assert (code, out) == (0, "the report is in report.html\n")
        assert data_in((written / "report.html").read_bytes())["sections"]

    @pytest.mark.parametrize(
        ("name", "text", "said"),
        [
            ("missing.json", None, "No such file"),
            ("cut.json", '{"operators": [', "not complete JSON"),
            ("other.json", '{"loss": 1}', "no tool of Amanda's has written it"),
            ("torch.json", '[{"ph": "X", "cat": "cpu_op"}, 1]', "no tool of Amanda's"),
            ("rows.json", '{"operators": [1]}', "no tool of Amanda's has written it"),
            ("rows2.json", json.dumps(LIKE_FINDINGS), "no tool of Amanda's has written it"),
            ("bad.jsonl", "{}\n{}\n", "line 1: not a line of a trace"),
            ("table.csv", "a,b\n1,2\n3,4\n", "not a line of a trace"),
            ("model.pt", "", "has to be .json, .jsonl or .csv"),
        ],
    )
    def test_of_something_else_are_refused(self, tmp_path, in_process, name, text, said):
        if text is not None:
            (tmp_path / name).write_text(text)
        code, _, err = in_process(tmp_path, "report", name, "--out", "new.html")
        assert code == 2
        assert said in err
        assert err.count("\n") == 1
        assert not (tmp_path / "new.html").exists()

    def test_are_not_overwritten(self, written, in_process):
        (written / "in.html").write_text("")
        code, _, err = in_process(written, "report", "trace.jsonl", "--out", "trace.jsonl")
        assert code == 2
        assert "is one of the files to read" in err
