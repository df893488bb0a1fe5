"""Types by other names than the dispatcher's bare ones, and misspelt ones."""

import warnings

import amanda
import pytest
import torch
from amanda.testing.probes import Record
from amanda_torch.interception import dispatch
from torch import nn


def seen(ops, run, **options):
    found = []
    tool = amanda.Tool(**options)
    tool.add_inst_for_op(lambda ctx: found.append(ctx.op.type), ops=ops)
    with amanda.apply(tool):
        run()
    return found


@pytest.mark.parametrize(
    "name",
    [
        *("linear", "aten::linear", "aten.linear", "linear.default", "aten.linear.default"),
        *("torch.ops.aten.linear", "torch.ops.aten.linear.default"),
        *("torch.nn.functional.linear", "nn.functional.linear", "F.linear"),
        str(torch.ops.aten.linear.default),
    ],
)
def test_every_name_of_an_operator_is_understood(name):
    assert seen([name], lambda: nn.Linear(2, 2)(torch.ones(2))) == ["linear"]


@pytest.mark.parametrize("name", ["add", "add.Tensor", "aten::add.Scalar", "torch.Tensor.add"])
def test_an_overload_stands_for_all(name):
    assert seen([name], lambda: torch.ones(2) + torch.ones(2)) == ["add"]


@pytest.mark.parametrize("name", ["linalg_inv", "torch.linalg.inv", "linalg.inv"])
def test_a_function_of_a_module_of_torchs_is_understood(name):
    assert seen([name], lambda: torch.linalg.inv(torch.eye(2))) == ["linalg_inv"]


def test_an_in_place_operator_is_one_of_its_own():
    assert seen(["aten::relu.default"], lambda: torch.relu_(torch.ones(2))) == []


@pytest.mark.parametrize(
    "name",
    [
        *("selected::twice", "selected::twice.default", "selected.twice.default"),
        *("torch.ops.selected.twice", "torch.ops.selected.twice.default"),
    ],
)
def test_an_operator_of_another_library_is_understood(name):
    with torch.library._scoped_library("selected", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        assert seen([name], lambda: torch.ops.selected.twice(torch.ones(2))) == ["selected::twice"]


CLASSES = ("nn.Linear", "torch.nn.Linear", "torch.nn.modules.linear.Linear")


@pytest.mark.parametrize(
    ("type", "ran", "run"),
    [
        ("Relu", "relu", lambda: torch.relu(torch.ones(2))),
        ("Linear", "linear", lambda: nn.Linear(2, 2)(torch.ones(2))),
        ("conv", "conv2d", lambda: nn.Conv2d(1, 1, 1)(torch.ones(1, 1, 2, 2))),
        ("LayerNorm", "layer_norm", lambda: nn.LayerNorm(2)(torch.ones(2))),
        *((name, "linear", lambda: nn.Linear(2, 2)(torch.ones(2))) for name in CLASSES),
    ],
)
def test_a_misspelt_type_is_named_with_the_one_that_ran(type, ran, run):
    bare = type.rpartition(".")[2]
    with pytest.warns(amanda.AmandaWarning, match=f"'{bare}' of Tool, did you mean '{ran}'"):
        assert seen([type], run) == []


@pytest.mark.parametrize("ops", [["relu"], ["relu", "Relu"], ["relu", "conv2d"], ["Detach"]])
def test_what_is_no_mistake_is_not_warned_of(ops):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen(ops, lambda: torch.relu(torch.ones(2)))


def test_operators_are_not_listed_again_for_each_type_that_there_is_not(monkeypatch):
    asked, listing = [], dispatch.operator_names
    monkeypatch.setattr(dispatch, "operator_names", lambda: asked.append(True) or listing())
    counts = []
    for number in (1, 40):
        asked.clear()
        with amanda.apply(Record([f"no_such_operator_{i}" for i in range(number)])):
            pass
        counts.append(len(asked))
    assert counts[0] == counts[1]


def test_an_operator_that_is_defined_between_two_scopes_is_named_in_the_second():
    with torch.library._scoped_library("selected", "FRAGMENT") as library:
        assert seen(["thrice"], lambda: torch.relu(torch.ones(2))) == []
        library.define("thrice(Tensor x) -> Tensor")
        library.impl("thrice", lambda x: x * 3, "CompositeExplicitAutograd")
        with pytest.warns(amanda.AmandaWarning, match="did you mean 'selected::thrice'"):
            seen(["selected::Thrice"], lambda: torch.ops.selected.thrice(torch.ones(2)))


@pytest.mark.parametrize("type", ["\udcff", "a::b::\udcff", "\0"])
def test_a_type_that_is_no_text_is_one_that_there_is_not(type):
    assert seen(["relu", type], lambda: torch.ones(2).relu()) == ["relu"]


def test_a_kernel_of_backward_operators_is_none_of_them_and_warned_of():
    tool, x = amanda.Tool(), torch.ones(2, requires_grad=True)
    tool.add_inst_for_op(lambda ctx: None, backward=True, ops=["threshold_backward"])
    message = "never ran in this scope: 'threshold_backward' of Tool"
    with pytest.warns(amanda.AmandaWarning, match=message), amanda.apply(tool):
        x.relu().sum().backward()


@pytest.mark.parametrize("type", ["AddmmBackward0", "AddmmBackward", "convolution_backward"])
def test_a_backward_type_among_forward_ones_is_warned_of(type):
    layer = nn.Linear(2, 2)
    with pytest.warns(amanda.AmandaWarning, match=f"backward=True.*'{type}' of Tool"):
        assert seen([type], lambda: layer(torch.ones(1, 2)).sum().backward()) == []
