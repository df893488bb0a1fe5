"""Trace: one line per execution."""

import json

import amanda
import pytest
import torch
from amanda_tools import Trace, read_trace
from torch import nn


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.jsonl"


class TestOfAModelKnownByHand:
    """A linear layer, a ReLU, a sum: forward in this order, and backward in reverse."""

    @pytest.fixture
    def rows(self, path):
        model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
        x = torch.ones(2, 4)
        with amanda.apply(Trace(path)):
            for _ in range(2):
                model(x).sum().backward()
        return list(read_trace(path))

    def test_order(self, rows):
        forward = [("linear", "0"), ("relu", "1"), ("sum", "")]
        backward = [("SumBackward0", ""), ("ReluBackward0", "1"), ("AddmmBackward0", "0")]
        seen = [(row["type"], row["scope"]) for row in rows]
        # how a linear layer transposes its weight is its own business
        assert [s for s in seen if s[0] != "TBackward0"] == (forward + backward) * 2

    def test_directions_and_the_forward_operator_of_each(self, rows):
        first = [row for row in rows if row["iteration"] == 0]
        assert [row["operator"] for row in first if row["direction"] == "forward"] == [
            row["id"] for row in first if row["direction"] == "forward"
        ]
        owners = {row["type"]: row["operator"] for row in first if row["direction"] == "backward"}
        linear, relu, total, *_ = (row["id"] for row in first)
        assert owners["ReluBackward0"] == relu
        assert owners["AddmmBackward0"] == linear
        assert owners["SumBackward0"] == total

    def test_iterations(self, rows):
        half = len(rows) // 2
        assert [row["iteration"] for row in rows] == [0] * half + [1] * half
        assert [row["id"] for row in rows[:half]] == [row["id"] for row in rows[half:]]

    def test_shapes_and_dtypes(self, rows):
        linear, relu, *_ = rows
        assert linear["input_shapes"] == [[2, 4], [3, 4], [3]]
        assert linear["output_shapes"] == relu["input_shapes"] == [[2, 3]]
        assert linear["input_dtypes"] == ["float32"] * 3
        (relu_backward, *_) = (row for row in rows if row["type"] == "ReluBackward0")
        assert relu_backward["input_shapes"] == relu_backward["output_shapes"] == [[2, 3]]

    def test_times_follow_each_other(self, rows):
        ends = [row["start"] + row["duration"] for row in rows]
        starts = [row["start"] for row in rows]
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
        assert all(row["duration"] > 0 for row in rows)


def test_every_row_has_the_same_flat_fields(toy, path):
    with amanda.apply(Trace(path)):
        toy.forward("a.b/conv", 7)
        toy.backward("a.b/conv", 9)
    forward, backward = read_trace(path)
    assert forward == {
        "id": "a.b/conv",
        "type": "conv",
        "scope": "a.b",
        "source": "a.b.py:12",
        "direction": "forward",
        "operator": "a.b/conv",
        "iteration": 0,
        "start": 0,
        "duration": 7,
        "input_shapes": [[2, 3]],
        "input_dtypes": ["float32"],
        "output_shapes": [[2, 3]],
        "output_dtypes": ["float32"],
    }
    assert list(backward) == list(forward)
    assert backward["input_shapes"] == [[2, 3], None]


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv"])
def test_a_source_that_nobody_can_tell_is_none(toy, tmp_path, ending, monkeypatch):
    monkeypatch.setattr(amanda.Operator, "source", None)
    path = tmp_path / f"trace.{ending}"
    with amanda.apply(Trace(path)):
        toy.forward("a.b/conv", 7)
    assert [row["source"] for row in read_trace(path)] == [None]


def test_is_complete_when_its_scope_is_left_by_an_exception(toy, path):
    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), amanda.apply(Trace(path)):
        toy.forward("conv", 7, inside=[lambda: toy.forward("relu", 2), fail])
    assert [row["id"] for row in read_trace(path)] == ["relu"]


def test_goes_on_when_applied_again(toy, path):
    trace = Trace(path)
    for _ in range(2):
        with amanda.apply(trace):
            toy.forward("conv", 7)
    assert [row["id"] for row in read_trace(path)] == ["conv", "conv"]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_ragged_sizes_are_null(path, layout):
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
    with amanda.apply(Trace(path)):
        torch.relu(ragged)
    (row,) = (row for row in read_trace(path) if row["type"] == "relu")
    assert row["output_shapes"][0][-1] is None


class TestReading:
    @pytest.fixture
    def whole(self, toy, path):
        """A line of a trace."""
        with amanda.apply(Trace(path)):
            toy.forward("conv", 7)
        return path.read_text()

    def test_leaves_out_a_last_line_that_was_cut_off(self, path, whole):
        for cut in range(len(whole) - 1):
            path.write_text(whole + whole[:cut])
            assert [row["id"] for row in read_trace(path)] == ["conv"]

    def test_gives_what_comes_before_another_broken_line_and_then_fails(self, path, whole):
        path.write_text(whole + '{"id": \n' + whole)
        rows = read_trace(path)
        assert next(rows)["id"] == "conv"
        with pytest.raises(ValueError, match="line 2"):
            next(rows)

    @pytest.mark.parametrize(
        "text",
        [
            "import torch\n",
            "import torch",
            "{}\n",
            "{}",
            '{"id": "conv"}\n',
            '[{"id": "conv"}]',
            '[\n{"name": "process_name"}\n]\n',
            "null\n",
            "[" * 100_000 + "\n",
            '{"id": 1, "type": "conv"}\n',
        ],
    )
    def test_of_a_file_that_is_no_trace_fails(self, path, text):
        path.write_text(text)
        with pytest.raises(ValueError, match="line 1"):
            list(read_trace(path))

    def test_of_a_file_of_bytes_fails(self, path):
        path.write_bytes(bytes(range(256)))
        with pytest.raises(ValueError, match="not a line of a trace"):
            list(read_trace(path))

    @pytest.mark.parametrize("field", ["id", "direction", "start", "input_shapes"])
    def test_of_rows_of_another_kind_fails(self, path, whole, field):
        row = json.loads(whole)
        del row[field]
        path.write_text(json.dumps(row) + "\n")
        with pytest.raises(ValueError, match="line 1"):
            list(read_trace(path))

    def test_of_an_empty_trace_gives_no_rows(self, path):
        Trace(path).open()
        assert list(read_trace(path)) == []
