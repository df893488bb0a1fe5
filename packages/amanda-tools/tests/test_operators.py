"""The list of operators: what is in it, and how it is shown."""

import contextlib
import csv
import json
import pty
import re
from concurrent.futures import ThreadPoolExecutor

import amanda
import pytest
import torch
from amanda_tools import OperatorRow, Operators
from amanda_tools.listing import Listing
from rich.console import Console
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Sequential()
model.add_module("a_projection_with_a_name_of_some_length", nn.Linear(3, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in DataLoader(TensorDataset(torch.ones(8, 3)), batch_size=4):
    model(x).relu().sum().backward()
    optimizer.step()
print("trained")
"""
LONG = "a_projection_with_a_name_of_some_length/linear"


def listed(run):
    tool = Operators()
    with amanda.apply(tool):
        run()
    return tool.rows()


def text(rows, width):
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(Listing(rows))
    return [line.rstrip() for line in captured.get().splitlines()]


def row(id, shape=(2, 3), purpose="model"):
    scope, _, type = id.rpartition("/")
    shapes = [None if shape is None else list(shape)]
    return OperatorRow(id, type, scope, purpose, ["x"], shapes, ["float32"], shapes, ["float32"])


def test_tells_names_shapes_and_dtypes_of_each_once():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    x = torch.ones(2, 3)
    rows = listed(lambda: [model(x).sum().backward() for _ in range(2)])
    assert len({row.id for row in rows}) == 3
    linear, relu, total = rows
    assert (relu.type, relu.scope, total.type, total.scope) == ("relu", "1", "sum", "")
    assert (linear.type, linear.scope, linear.purpose) == ("linear", "0", "model")
    assert linear.inputs == ["input", "weight", "bias"]
    assert linear.input_shapes == [[2, 3], [4, 3], [4]]
    assert linear.output_shapes == relu.input_shapes == [[2, 4]]
    assert relu.output_dtypes == ["float32"]


def test_tells_what_operators_are_there_for():
    def train():
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        model.load_state_dict(model.state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for (x,) in DataLoader(TensorDataset(torch.ones(8, 3)), batch_size=4):
            model(x).sum().backward()
            optimizer.step()

    found = {(row.type, row.purpose) for row in listed(train)}
    assert {purpose for type, purpose in found if type in ("linear", "relu", "sum")} == {"model"}
    assert {purpose for type, purpose in found if type in ("uniform_", "copy_")} == {
        "initialization"
    }
    assert ("stack", "data") in found
    assert ("add_", "optimizer") in found


class TestListing:
    def test_has_a_line_for_each_operator_where_there_is_room(self):
        shown = text([row("a.b/conv"), row("a/relu", (2, None)), row("sum", None)], 100)
        assert [line.split() for line in shown if "->" in line] == [
            ["a.b/conv", "conv", "a.b", "float32[2,", "3]", "->", "float32[2,", "3]"],
            ["a/relu", "relu", "a", "float32[2,", "?]", "->", "float32[2,", "?]"],
            ["sum", "sum", "float32[...]", "->", "float32[...]"],
        ]

    def test_has_the_shapes_below_where_there_is_none_and_leaves_nothing_out(self):
        shown = text([row("encoder.layer.0.attention.self.query/linear", (2, 384) * 8)], 60)
        assert max(map(len, shown)) <= 60
        assert "encoder.layer.0.attention.self.query/linear" in shown
        assert "".join(" ".join(shown).split()).count("384") == 16

    def test_has_what_is_no_part_of_the_model_below_it(self):
        rows = [
            row("stack", purpose="data"),
            row("uniform_", purpose="initialization"),
            row("SGD/add_", purpose="optimizer"),
            row("ring/send", purpose="communication"),
            row("a/conv"),
        ]
        words = [line.split()[0] for line in text(rows, 100) if line.strip() and "──" not in line]
        assert words == [
            *("Operators", "a/conv", "Optimizer", "SGD/add_", "Data", "stack"),
            *("Initialization", "uniform_", "communication", "ring/send"),
        ]


class TestCommand:
    @pytest.fixture
    def script(self, tmp_path):
        (tmp_path / "train.py").write_text(TRAIN)
        return tmp_path

    def test_lists_what_a_script_runs_behind_its_own_output(self, script, in_process):
        code, out, err = in_process(script, "ops", "--out", "ops.csv", "train.py")
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert lines[0] == "trained"
        (linear,) = (line for line in lines if LONG in line)
        assert linear.endswith("float32[4, 3], float32[4, 3], float32[4] -> float32[4, 4]")
        assert all(line == line.rstrip() for line in lines)
        with (script / "ops.csv").open(newline="") as file:
            written = {row["id"]: row for row in csv.DictReader(file)}
        assert json.loads(written[LONG]["input_shapes"]) == [[4, 3], [4, 3], [4]]

    def test_spells_out_what_the_standard_output_cannot_show(self, script, in_process):
        text = TRAIN.replace("a_projection_with_a_name_of_some_length", "naïve")
        (script / "train.py").write_text(text)
        with (script / "shown").open("w", encoding="ascii") as out:
            assert in_process(script, "ops", "train.py", out=out)[0] == 0
        assert "na\\xefve/linear" in (script / "shown").read_text()

    def test_of_some_types_alone(self, script, in_process):
        out = in_process(script, "ops", "--ops", "relu", "train.py")[1]
        assert "relu" in out
        assert "linear" not in out

    def test_in_a_width_that_is_asked_for(self, script, in_process):
        _, out, _ = in_process(script, "ops", "--width", "50", "train.py")
        assert max(map(len, out.splitlines())) <= 50
        assert LONG in out

    def test_that_saw_nothing_says_why(self, script, in_process):
        (script / "empty.py").write_text("import torch")
        code, out, err = in_process(script, "ops", "empty.py")
        assert (code, out) == (0, "")
        assert err.startswith("amanda: no operator ran; ")

    def test_refuses_another_ending_before_anything_runs(self, script, in_process):
        code, out, err = in_process(script, "ops", "--out", "ops.txt", "train.py")
        assert (code, out) == (2, "")
        assert "has to be .json or .csv" in err


def on_a_terminal(in_process, folder, *arguments):
    """What the command writes on a terminal of 80 columns, its output and its reports."""
    parent, child = pty.openpty()
    with open(child, "w") as terminal, ThreadPoolExecutor() as threads:
        shown = threads.submit(everything, parent)
        assert in_process(folder, *arguments, out=terminal, err=terminal)[0] == 0
        terminal.close()
        return [plain(line) for line in shown.result().decode().splitlines()]


def everything(parent):
    """What is written to the other side of a terminal until that is closed."""
    parts = []
    with open(parent, "rb", buffering=0) as terminal, contextlib.suppress(OSError):
        while part := terminal.read(1 << 16):
            parts.append(part)
    return b"".join(parts)


def plain(line):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).rstrip()


@pytest.mark.parametrize("arguments", [["ops"], ["run", "--tool", "flops", "--tool", "profile"]])
def test_tables_fit_a_terminal(tmp_path, in_process, arguments):
    (tmp_path / "train.py").write_text(TRAIN)
    shown = on_a_terminal(in_process, tmp_path, *arguments, "train.py")
    assert "trained" in shown
    tables = [line for line in shown if not line.startswith(("flops:", "no formula", "profile:"))]
    tables = [line for line in tables if "train.py:" not in line]  # where the slowest are
    assert max(map(len, tables)) <= 80
    assert any("linear" in line for line in tables)


def test_tables_of_a_run_are_whole_in_files_without_trailing_blanks(tmp_path, in_process):
    (tmp_path / "train.py").write_text(TRAIN)
    _, _, err = in_process(tmp_path, "run", "--tool", "flops", "train.py")
    assert LONG.partition("/")[0] in err
    assert all(line == line.rstrip() for line in err.splitlines())
    _, _, narrow = in_process(tmp_path, "run", "--width", "60", "--tool", "flops", "train.py")
    assert max(len(line) for line in narrow.splitlines() if "no formula" not in line) <= 60
