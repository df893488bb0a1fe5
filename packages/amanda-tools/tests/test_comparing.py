"""Runs that are recorded and compared: planted differences are found at their operator."""

import copy
import csv
import functools
import json

import amanda
import numpy as np
import pytest
import torch
from amanda_tools import Compiled, Record, campaign, compare, compare_records, unpacked
from torch import nn
from wrong_compilers import wrong_at


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


torch.manual_seed(0)
MODEL = nn.Sequential(nn.Linear(4, 8), Block(), Block(), nn.Linear(8, 3))
X = torch.randn(5, 4)


def changed(path, change):
    model = copy.deepcopy(MODEL)
    weight = model.get_submodule(path).weight
    with torch.no_grad():
        change(weight)
    return model


def run_of(model, dtype=torch.float32):
    def run():
        with torch.no_grad():
            y = model(X if dtype is torch.float32 else X.to(dtype))
            return y if dtype is torch.float32 else y.float()

    return run


def record_of(run, **options):
    tool = Record(**options)
    with amanda.apply(tool):
        run()
    return tool.run()


class TestCompare:
    def test_finds_no_difference_of_equal_runs(self):
        found = compare(run_of(MODEL), run_of(copy.deepcopy(MODEL)))
        assert found.first() is None
        assert found.totals() == {"compared": 11, "differ": 0, "only_first": 0, "only_second": 0}
        assert found.found() == "none of 11 tensors differs"
        assert found.notes == []

    def test_names_the_first_operator_that_differs_and_by_how_much(self):
        other = changed("2.up", lambda w: w[3, 4].add_(0.5))
        found = compare(run_of(MODEL), run_of(other), values="all")
        first = found.first()
        assert (first.id, first.type, first.iteration) == ("2.up/linear", "Gemm", 0)

        outputs = []
        for model in (MODEL, other):
            hook = model[2].up.register_forward_hook(lambda m, i, out: outputs.append(out))
            run_of(model)()
            hook.remove()
        one, two = outputs
        assert first.absolute == (one - two).abs().max()
        assert first.relative == pytest.approx(float((one - two).norm() / one.norm()))
        assert [row.differs for row in found.rows()] == [False] * 5 + [True] * 6
        assert found.by_layer()["1.down"][0].differs is False

    def test_of_a_change_of_one_element_that_is_not_recorded_knows_that_it_differs(self):
        other = changed("1.up", lambda w: w[0, 0].add_(1e-3))
        found = compare(run_of(MODEL), run_of(other), values=1, rtol=None)
        assert found.first().id == "1.up/linear"

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
    def test_takes_the_rounding_of_another_type_for_no_difference(self, dtype):
        same = copy.deepcopy(MODEL).to(dtype)
        found = compare(run_of(MODEL), run_of(same, dtype))
        assert found.first() is None
        assert max(row.relative for row in found.rows()) > 0
        # a fault beyond that is one
        other = changed("2.down", lambda w: w.mul_(-1)).to(dtype)
        assert compare(run_of(MODEL), run_of(other, dtype)).first().id == "2.down/linear"

    def test_allows_what_it_is_told_to(self):
        other = changed("2.up", lambda w: w.mul_(1.001))
        assert compare(run_of(MODEL), run_of(other), rtol=0.01).first() is None
        assert compare(run_of(MODEL), run_of(other), rtol=1e-4).first().id == "2.up/linear"

    def test_of_a_training_step_finds_a_gradient_that_differs(self):
        def step(model):
            def run():
                model.zero_grad()
                loss = model(X).square().sum()
                loss.backward()

            return run

        class Wrong(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

        class Doubling(nn.Linear):
            def forward(self, x):
                return Wrong.apply(super().forward(x))

        other = copy.deepcopy(MODEL)
        other[2].up.__class__ = Doubling
        first = compare(step(MODEL), step(other), gradients=True).first()
        assert (first.direction, first.id) == ("backward", "2.up/linear")

    def test_matches_operators_of_other_ids_by_layer_type_and_order(self):
        class Renamed(Block):
            def forward(self, x):
                return x + self.down(torch.clamp(self.up(x), min=0).relu())

        other = copy.deepcopy(MODEL)
        other[1].__class__ = Renamed
        found = compare(run_of(MODEL), run_of(other))
        assert found.first() is None
        assert found.only_second == ["1/clamp"]
        assert "only in the second run: 1 operators: 1/clamp" in found.report()

    def test_calls_an_error_that_is_allowed_no_difference(self):
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(32)))
        other = copy.deepcopy(model)
        for parameter in other.parameters():
            parameter.data *= 1.01
        found = compare(run_of(model), run_of(other), rtol=9)
        assert found.report()[1:] == [
            "... and 3 more layers with errors",  # 33, with what is returned
            "compare: none of 33 tensors differs",
        ]

    def test_tells_iterations_apart(self):
        def run(factors):
            def each():
                for factor in factors:
                    MODEL[0](X * factor)

            return each

        found = compare(run([1, 2, 3]), run([1, 2, 4]))
        assert [(r.iteration, r.differs) for r in found.rows() if r.type == "Gemm"] == [
            (0, False),
            (1, False),
            (2, True),
        ]

    def test_of_nan_and_infinity_finds_what_only_one_run_has(self):
        def run(value):
            return lambda: torch.tensor([1.0, value]) + 1

        assert compare(run(float("nan")), run(float("nan"))).first() is None
        assert compare(run(1.0), run(float("nan"))).first().relative == float("inf")

    def test_of_a_compiled_model_names_the_operator_that_is_compiled_otherwise(self):
        compiled = torch.compile(MODEL, backend=wrong_at("relu"))
        found = compare(run_of(MODEL), run_of(compiled))
        first = found.first()
        assert (first.type, first.compared, found.rows()[-1].id) == ("relu", "compiled", "(result)")
        assert first.relative == pytest.approx(0.01, rel=1e-3)
        assert "it has compiled code, which runs operator by operator" in found.notes[0]

    def test_of_a_compiled_model_allows_rounding(self):
        compiled = torch.compile(MODEL, backend=wrong_at("relu", by=1 + 2e-6))
        found = compare(run_of(MODEL), run_of(compiled))
        assert found.first() is None
        assert "none of 1 pieces of compiled code" in found.notes[0]

    def test_says_where_results_without_tools_are_others(self):
        state = iter(range(100))
        found = compare(lambda: np.array(next(state)), lambda: np.array(5))
        assert len(found.notes) == 1
        assert found.notes[0].startswith("the first run gives other results without tools")


class TestRecord:
    def test_is_small_whatever_it_is_of(self, tmp_path):
        path = tmp_path / "run.npz"

        def run():
            for _ in range(50):
                torch.ones(100_000).relu()

        tool = Record(path, values=10, iterations=3)
        with amanda.apply(tool):
            run()
        relu = [row for row in tool.rows() if row.type == "Relu"]
        assert [row.iteration for row in relu] == [0, 1, 2]
        assert path.stat().st_size < 10_000
        assert all(len(sample) == 10 for sample in tool.run().samples)

    def test_has_statistics_of_what_is_finite(self):
        record = record_of(lambda: torch.tensor([1.0, 3.0, float("inf"), float("nan")]) * 1)
        (row,) = (row for row in record.rows if row.type == "Mul")
        assert (row.mean, row.std, row.least, row.most, row.nonfinite) == (2.0, 1.0, 1.0, 3.0, 2)
        assert (row.dtype, row.shape) == ("float32", [4])

    def test_is_read_as_it_was_written(self, tmp_path):
        path = tmp_path / "run.npz"
        tool = Record(path)
        with amanda.apply(tool):
            run_of(MODEL)()
        read = unpacked(path)
        assert read.rows == tool.rows()
        for one, other in zip(read.samples, tool.run().samples, strict=True):
            np.testing.assert_array_equal(one, other)
        assert compare_records(path, tool.run()).first() is None

    def test_of_statistics_alone_is_json_or_csv(self, tmp_path):
        for name in ("run.json", "run.csv"):
            with amanda.apply(Record(tmp_path / name)):
                run_of(MODEL)()
        rows = json.loads((tmp_path / "run.json").read_text())["tensors"]
        with (tmp_path / "run.csv").open(newline="") as file:
            assert [row["digest"] for row in csv.DictReader(file)] == [r["digest"] for r in rows]

    def test_refuses_a_file_that_is_none(self, tmp_path):
        (tmp_path / "run.npz").write_text("nothing")
        with pytest.raises(ValueError, match="is no record; --tool record:out="):
            unpacked(tmp_path / "run.npz")
        np.savez(tmp_path / "other.npz", a=1)
        with pytest.raises(ValueError, match="is no record"):
            unpacked(tmp_path / "other.npz")
        with pytest.raises(FileNotFoundError):
            unpacked(tmp_path / "missing.npz")
        with pytest.raises(ValueError, match="have to be 1 or more"):
            Record(values=0)


def test_the_command_compares_two_records(tmp_path, in_process):
    other = changed("2.up", lambda w: w[3, 4].add_(0.5))
    for name, model in (("one", MODEL), ("two", MODEL), ("three", other)):
        with amanda.apply(Record(tmp_path / f"{name}.npz")):
            run_of(model)()
    code, out, _ = in_process(tmp_path, "compare", "one.npz", "two.npz")
    assert (code, "compare: none of 10 tensors differs" in out) == (0, True)
    arguments = ("one.npz", "three.npz", "--out", "found.json")
    code, out, _ = in_process(tmp_path, "compare", *arguments)
    assert code == 1
    assert "compare: 2.up/linear (" in out
    written = json.loads((tmp_path / "found.json").read_text())
    assert written["total"]["differ"] == 5
    code, _, err = in_process(tmp_path, "compare", "one.npz", "missing.npz")
    assert (code, err.count("\n")) == (2, 1)


@pytest.mark.parametrize("rtol", [-0.1, float("nan"), float("inf")])
def test_a_difference_that_cannot_be_allowed_is_refused_before_anything_runs(rtol):
    for refused in (functools.partial(compare, pytest.fail, pytest.fail), Compiled):
        with pytest.raises(ValueError, match=r"rtol is .*, and has to be 0 or more"):
            refused(rtol=rtol)


def test_the_command_does_not_call_runs_alike_that_have_nothing_in_common(tmp_path, in_process):
    for name, module in (("one", nn.ReLU()), ("two", nn.Sigmoid())):
        record_of(lambda module=module: module(X), out=tmp_path / f"{name}.npz")
    code, out, _ = in_process(tmp_path, "compare", "one.npz", "two.npz")
    assert code == 1
    assert "nothing was compared" in out


@pytest.mark.parametrize(
    "run", [lambda: (torch.ones(2), torch.ones(3)), lambda: torch.ones(2, requires_grad=True), dict]
)
def test_results_that_are_no_array_are_refused_by_the_name_of_the_run(run):
    with pytest.raises(TypeError, match="the first run returns what NumPy does not take"):
        compare(run, run)
    with pytest.raises(TypeError, match=r"run\(\) returns what NumPy does not take"):
        campaign(run)
