"""NanWatch: the first operator that makes a NaN or an infinity, on PyTorch."""

import json
import linecache

import amanda
import pytest
import torch
from amanda_tools import NanWatch
from torch import nn


def watched(run, **options):
    tool = NanWatch(**options)
    with amanda.apply(tool):
        run()
    return tool


def line_of(row):
    file, _, number = row.source.rpartition(":")
    return linecache.getline(file, int(number)).strip()


def quotient(x, y):
    z = x + 1
    z = z / y
    return (z * 0).relu()


def test_names_the_operator_that_makes_it_and_not_those_that_hand_it_on():
    tool = watched(lambda: quotient(torch.ones(3), torch.tensor([1.0, 0.0, 0.0])))
    inf, nan = tool.rows()
    assert (inf.type, inf.made, inf.of, inf.elements) == ("div", "inf", "finite", 2)
    assert line_of(inf) == "z = z / y"
    assert inf.inputs == ["self float32[3] 2 to 2", "other float32[3] 0 to 1"]
    assert (nan.type, nan.made, nan.of) == ("mul", "nan", "inf")
    assert tool.first() == inf
    assert tool.found().startswith("forward div")


def test_of_nans_alone_leaves_infinities_out():
    tool = watched(lambda: quotient(torch.ones(3), torch.zeros(3)), infinities=False)
    assert [row.made for row in tool.rows()] == ["nan"]


def test_names_a_backward_operator_with_the_line_of_its_forward():
    x = torch.zeros(3, requires_grad=True)

    def run():
        y = x.sqrt()
        (y * 0).sum().backward()

    (row,) = watched(run).rows()
    assert (row.type, row.direction) == ("SqrtBackward0", "backward")
    assert row.operator.startswith("sqrt")
    assert (row.made, row.of, row.elements) == ("nan", "finite", 3)
    assert line_of(row) == "y = x.sqrt()"


def test_of_a_nan_in_the_data_names_the_operator_that_is_given_it():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.tensor([[1.0, float("nan"), 2.0]])
    tool = watched(lambda: model(x).sum().backward())
    (row,) = tool.rows()
    assert (row.scope, row.type, row.made, row.of) == ("0", "linear", "nan", "nan")
    assert "is given" in tool.found()


def test_a_mask_of_infinities_is_no_fault_and_a_row_that_is_all_masked_is_one():
    scores = torch.randn(2, 3)

    def attention(mask):
        return scores.masked_fill(mask, -torch.inf).softmax(-1)

    some, every = torch.tensor([True, False, False]), torch.ones(3, dtype=torch.bool)
    assert watched(lambda: attention(some)).rows() == []
    (row,) = watched(lambda: attention(every)).rows()
    assert (row.type, row.made, row.of) == ("softmax", "nan", "inf")


def test_counts_executions_and_tells_which_was_the_first():
    def run():
        for value in (1.0, 2.0, 0.0, 0.0):
            torch.full((2,), value).log()

    (row,) = watched(run).rows()
    assert (row.iteration, row.executions) == (2, 2)


def repeated(x):
    for _ in range(6):
        x = torch.log(x)
    return x


def test_names_the_line_in_torchscript():
    scripted = torch.jit.script(repeated)
    row = watched(lambda: scripted(torch.full((3,), 20.0))).first()
    assert (row.made, line_of(row)) == ("nan", "x = torch.log(x)")
    with pytest.raises(amanda.RoutineError, match="makes 3 NaN of finite inputs"):
        watched(lambda: scripted(torch.full((3,), 20.0)), stop=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_of_any_type_of_numbers(dtype):
    row = watched(lambda: torch.ones(3, dtype=dtype).div_(0)).first()
    assert (row.type, row.elements) == ("div_", 3)


def test_names_the_operator_of_an_optimizer():
    weight = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adam([weight], eps=0)
    weight.grad = torch.zeros(2)
    first = watched(optimizer.step).first()
    assert (first.scope, first.type) == ("Adam", "addcdiv_")


def test_says_what_it_could_not_look_at():
    tool = watched(lambda: torch.func.vmap(torch.log)(torch.zeros(3, 2)))
    assert tool.rows() == []
    assert "could not look at 1 operators; log" in tool.report()[1]
    assert "one of a batch under vmap" in tool.report()[1]


def test_takes_no_memory_as_it_was_found_for_numbers():
    ones = torch.ones(3)
    assert watched(lambda: torch.empty_like(ones).fill_(1)).executions == 1


class TestStopping:
    def test_is_an_error_from_there_that_names_the_line(self):
        with pytest.raises(amanda.RoutineError, match=r"div.* \(.*makes 3 Inf of finite") as raised:
            watched(lambda: quotient(torch.ones(3), torch.zeros(3)), stop=True)
        assert isinstance(raised.value.__cause__, FloatingPointError)
        assert raised.value.operator_id.startswith("div")

    def test_does_not_happen_where_all_is_finite(self):
        assert watched(lambda: quotient(torch.ones(3), torch.ones(3)), stop=True).rows() == []


def test_changes_no_bit_of_a_training():
    def train():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5))
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            model(torch.randn(2, 1, 6, 6)).sum().backward()
            optimizer.step()
        return model.state_dict()

    plain = train()
    seen = []
    watched(lambda: seen.append(train()))
    assert all(torch.equal(plain[name], value) for name, value in seen[0].items())


def test_by_the_command_writes_what_it_found(tmp_path, in_process):
    (tmp_path / "faulty.py").write_text("import torch\nx = torch.zeros(2)\nprint(x / x)\n")
    code, out, err = in_process(tmp_path, "run", "--tool", "nan:out=found.json", "faulty.py")
    assert (code, out) == (0, "tensor([nan, nan])\n")
    assert err.startswith("nan: forward div")
    assert "faulty.py:3) makes 2 NaN of finite inputs" in err
    (row,) = json.loads((tmp_path / "found.json").read_text())["operators"]
    assert row["made"] == "nan"
