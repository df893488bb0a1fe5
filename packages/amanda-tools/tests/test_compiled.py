"""Compiled code is held to its operators: the first that a compiler computes otherwise is named."""

import copy
import json
import linecache

import amanda
import pytest
import torch
from amanda_tools import Compiled, Flops
from torch import nn
from wrong_compilers import wrong_at, wrong_gradient


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.down = nn.Sequential(nn.GELU(), nn.Linear(8, 4))

    def forward(self, x):
        beside = x.exp()
        hidden = self.norm(self.up(x).tanh())
        return x + self.down(hidden), beside.tanh()  # the second


torch.manual_seed(0)
MODEL = Block()
X = torch.randn(5, 4)


def held(compiled, *args, **options):
    tool = Compiled(**options)
    with amanda.apply(tool):
        compiled(*args)
    return tool


def compiled_by(backend):
    return torch.compile(copy.deepcopy(MODEL), backend=backend)


def line_of(row):
    file, _, line = row.source.rpartition(":")
    return linecache.getline(file, int(line)).strip()


@pytest.mark.parametrize(
    ("name", "id", "line"),
    [
        ("linear", "up/linear", "hidden = self.norm(self.up(x).tanh())"),
        ("gelu", "down.0/gelu", "return x + self.down(hidden), beside.tanh()  # the second"),
        ("exp", "exp", "beside = x.exp()"),
        ("add", "add", "return x + self.down(hidden), beside.tanh()  # the second"),
    ],
)
def test_names_the_operator_and_its_line(name, id, line):
    first = held(compiled_by(wrong_at(name)), X).first()
    assert (first.id, first.direction, line_of(first)) == (id, "forward", line)


def test_tells_how_far_results_are_apart():
    first = held(compiled_by(wrong_at("exp")), X).first()
    assert first.relative == pytest.approx(0.01, rel=1e-3)
    assert first.absolute == pytest.approx(0.01 * X.exp().max().item(), rel=1e-3)
    assert (first.dtype, first.allowed, first.operators) == ("float32", 1e-5, 9)


def test_names_an_operator_that_only_fused_code_computes_otherwise():
    first = held(compiled_by(wrong_at("tanh", if_alone=True)), X).first()
    assert first.id == "tanh"
    assert held(compiled_by(wrong_at("exp", if_alone=True)), X).first() is None  # x is read twice


def test_names_an_operator_whose_gradient_differs():
    first = held(compiled_by(wrong_gradient("gelu_backward")), X).first()
    assert (first.id, first.direction) == ("down.0/gelu", "backward")


def test_what_was_compiled_before_is_held_and_compiled_code_is_as_it_was():
    compiled = compiled_by(wrong_at("gelu"))
    before = compiled(X)[0].detach()
    state = {name: tensor.clone() for name, tensor in compiled.state_dict().items()}
    assert held(compiled, X).first().id == "down.0/gelu"
    buffers = compiled.state_dict()
    assert buffers["_orig_mod.norm.num_batches_tracked"] == 2
    compiled.load_state_dict(state)
    assert torch.equal(compiled(X)[0], before)


def test_every_piece_of_a_program_is_held_once():
    @torch.compile(backend=wrong_at("cos"))
    def function(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    tool = Compiled()
    with amanda.apply(tool):
        for _ in range(2):
            function(X)
    assert [(row.type, row.differs) for row in tool.rows()] == [("sin", False), ("cos", True)]
    assert tool.totals() == {"pieces": 2, "operators": 2, "differ": 1}


def test_finds_nothing_where_there_is_nothing_to_find():
    assert "none of 1 pieces" in held(compiled_by("eager"), X).found()
    assert held(MODEL, X).found() == "no compiled code ran"
    assert held(compiled_by(wrong_at("gelu")), X, rtol=0.1).first() is None


def test_is_refused_beside_tools_that_look_at_operators():
    with pytest.raises(amanda.UnsupportedError, match="in another scope"), amanda.apply(Flops()):
        held(MODEL, X)
    refused = pytest.raises(amanda.UnsupportedError, match="in another scope")
    with amanda.apply(Compiled()), refused, amanda.apply(Flops()):
        MODEL(X)
    assert held(compiled_by(wrong_at("exp")), X).first().id == "exp"


def test_the_command_holds_compiled_code(tmp_path, in_process):
    (tmp_path / "program.py").write_text(
        "import torch\n"
        "from wrong_compilers import wrong_at\n"
        "def function(x):\n"
        "    return x.sin().cos()\n"
        "torch.compile(function, backend=wrong_at('cos'))(torch.ones(3))\n"
    )
    tool = "amanda_tools:Compiled:out=found.json"
    code, out, err = in_process(tmp_path, "run", "--tool", tool, "program.py")
    assert code == 0, err
    assert "compiled: cos (" in out + err
    (row,) = json.loads((tmp_path / "found.json").read_text())["pieces"]
    assert (row["type"], row["source"].endswith("program.py:4")) == ("cos", True)
