"""Kernels, held to what torch.profiler records without tools."""

import csv
import json
from collections import Counter

import amanda
import pytest
import torch
from amanda_tools import Kernels
from torch import nn

MODEL = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
X = torch.randn(5, 8)
COMPUTE = {"aten::addmm", "aten::mm", "aten::threshold_backward", "aten::clamp_min"}


def step():
    MODEL.zero_grad()
    MODEL(X).sum().backward()


def under(tool, run, times=1):
    with amanda.apply(tool):
        for _ in range(times):
            run()
    return tool


def test_are_those_that_the_profiler_records_without_tools():
    with torch.profiler.profile() as profile:
        step()
        step()
    expected = Counter(event.name for event in profile.events() if event.name in COMPUTE)
    found = Counter()
    for row in under(Kernels(), step, 2).rows():
        if row.kernel in COMPUTE:
            found[row.kernel] += row.launches
    assert found == expected
    assert found["aten::addmm"] == 4


def test_are_joined_to_operators_forward_and_backward():
    tool = under(Kernels(), step)
    rows = {(row.type, row.direction, row.kernel): row for row in tool.rows()}
    assert rows["linear", "forward", "aten::addmm"].time > 0
    assert rows["linear", "forward", "aten::addmm"].device == "cpu"
    backward = rows["ReluBackward0", "backward", "aten::threshold_backward"]
    assert "relu" in backward.operator
    linear = [row for row in tool.rows() if row.kernel == "aten::addmm"]
    assert len({row.id for row in linear}) == 2  # each layer has its own
    for operator in {row.operator for row in linear}:
        assert any(row.kernel == "aten::mm" and row.operator == operator for row in tool.rows())


def test_are_columns_totals_and_a_table():
    tool = under(Kernels(), step)
    times, launches = tool.columns()
    assert sum(launches.values.values()) == tool.totals()["launches"]
    assert sum(times.values.values()) == tool.totals()["time"]
    assert tool.found() in tool.report()[-1]
    assert Kernels().report() == ["kernels: 0 launches by 0 operators, 0 ns"]


def test_change_no_bit():
    step()
    plain = [parameter.grad.clone() for parameter in MODEL.parameters()]
    under(Kernels(), step)
    for before, parameter in zip(plain, MODEL.parameters(), strict=True):
        assert torch.equal(before, parameter.grad)


def test_of_a_program_that_uses_the_profiler_itself_are_refused():
    with (
        torch.profiler.profile(),
        pytest.raises(amanda.UnsupportedError, match=r"the program uses torch\.profiler itself"),
    ):
        under(Kernels(), step)


def test_are_written_by_the_ending(tmp_path):
    for name in ("kernels.json", "kernels.csv"):
        tool = under(Kernels(tmp_path / name), step)
    written = json.loads((tmp_path / "kernels.json").read_text())
    assert written["total"]["launches"] > 0
    with (tmp_path / "kernels.csv").open(newline="") as file:
        assert [row["kernel"] for row in csv.DictReader(file)] == [r.kernel for r in tool.rows()]
