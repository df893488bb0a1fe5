"""Backward operators one by one: each autograd node, by its own type, with its forward operator."""

from __future__ import annotations

import amanda
import pytest
import torch
from amanda.testing.probes import Insert, Record
from torch import Tensor, nn
from watching import BackwardWatch

X = torch.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]])


def leaf(tensor: Tensor = X) -> Tensor:
    return tensor.clone().requires_grad_()


class ConvNet(nn.Module):
    """With the activation in place, as in ResNet and DenseNet."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.conv(x)).mean((2, 3)))


# Which there are


def test_every_node_has_its_forward_operator() -> None:
    tool = BackwardWatch()
    with amanda.apply(tool):
        ConvNet()(torch.randn(1, 2, 4, 4)).sum().backward()
    assert tool.analyzed == [
        ("sum", "sum/SumBackward0"),
        ("head/linear", "head/linear/AddmmBackward0"),
        ("head/linear", "head/linear/TBackward0"),
        ("mean", "mean/MeanBackward1"),
        ("act/relu_", "act/relu_/ReluBackward0"),
        ("conv/conv2d", "conv/conv2d/ConvolutionBackward0"),
    ]


def test_nodes_of_one_type_are_told_apart() -> None:
    tool = BackwardWatch(ops=["einsum"])
    a, b = leaf(torch.randn(2, 3)), leaf(torch.randn(3, 4))
    with amanda.apply(tool):
        torch.einsum("ij,jk->ik", a, b).sum().backward()
    ids = [backward for _, backward in tool.analyzed]
    assert len(set(ids)) == len(ids) > 2
    assert "einsum/PermuteBackward0#2" in ids


def test_a_custom_function_is_its_own_backward_operator() -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * grad

    x, tool = leaf(), BackwardWatch()
    with amanda.apply(tool):
        Cube.apply(x).sum().backward()
    assert ("Cube", "Cube/CubeBackward") in tool.analyzed
    assert torch.equal(tool.given["CubeBackward"][0][0], 3 * X**2)


def test_a_module_called_twice_has_backward_operators_of_its_own() -> None:
    layer = nn.Linear(3, 3)
    model = nn.Sequential(layer, nn.Tanh(), layer)
    tool = BackwardWatch(ops=["linear"])
    with amanda.apply(tool):
        model(X).sum().backward()
    second, first = "0/linear#2", "0/linear"
    assert [op for op, _ in tool.analyzed] == [second, second, first, first]


def test_writing_through_a_view_has_no_backward_operators_of_others() -> None:
    x, tool = leaf(), BackwardWatch()
    with amanda.apply(tool):
        y = x.sin()
        y[0].mul_(2)
        y.sum().backward()
    assert {op for op, backward in tool.analyzed if "SinBackward" in backward} == {"sin"}
    assert ("mul_", "mul_/CopySlices") in tool.analyzed
    assert torch.equal(x.grad, X.cos() * torch.tensor([[2.0], [1.0]]))


def test_what_needs_no_gradient_has_no_backward_operators() -> None:
    tool = BackwardWatch()
    with amanda.apply(tool):
        y = X.exp()
        (y * leaf()).sum().backward()
    assert "exp" not in {op for op, _ in tool.analyzed}


def test_a_frozen_parameter_gets_no_gradient() -> None:
    model = ConvNet()
    model.conv.weight.requires_grad_(False)
    tool = BackwardWatch(ops=["conv2d"])
    with amanda.apply(tool):
        model(torch.randn(1, 2, 4, 4)).sum().backward()
    ((x, weight, bias),) = tool.given["ConvolutionBackward0"]
    assert x is None
    assert weight is None
    assert torch.equal(bias, model.conv.bias.grad)


def test_gradients_line_up_with_what_the_node_takes_and_gives() -> None:
    x, tool = leaf(), BackwardWatch(ops=["unbind", "where"])
    with amanda.apply(tool):
        first, _ = x.unbind()
        torch.where(first > 0, first, 5.0).mul(3).sum().backward()
    ((taken, unused),) = tool.taken["UnbindBackward0"]
    assert torch.equal(taken, 3.0 * (X[0] > 0))
    assert unused is None
    ((chosen, other),) = tool.given["WhereBackward0"]
    assert torch.equal(chosen, taken)
    assert other is None


# Which a tool asks for


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        (["ConvolutionBackward0"], ["ConvolutionBackward0"]),
        (["conv2d"], ["ConvolutionBackward0"]),
        (["linear"], ["AddmmBackward0", "TBackward0"]),
        (["TBackward0", "relu_"], ["TBackward0", "ReluBackward0"]),
        (["NoSuchBackward0"], []),
    ],
    ids=lambda value: "+".join(value),
)
def test_types_of_forward_or_backward_operators_are_asked_for(
    ops: list[str], expected: list[str]
) -> None:
    tool = BackwardWatch(ops=ops)
    with amanda.apply(tool):
        ConvNet()(torch.randn(1, 2, 4, 4)).sum().backward()
    assert tool.ran == expected


def test_an_analysis_runs_once_an_operator_and_routines_at_each_backward() -> None:
    model, tool = ConvNet(), BackwardWatch(ops=["conv2d"])
    with amanda.apply(tool):
        for _ in range(3):
            model(torch.randn(1, 2, 4, 4)).sum().backward()
    assert len(tool.analyzed) == 1
    assert tool.ran == ["ConvolutionBackward0"] * 3


def test_two_forwards_before_their_backwards_are_analyzed_once() -> None:
    model, tool = ConvNet(), BackwardWatch(ops=["conv2d"])
    with amanda.apply(tool):
        losses = [model(torch.randn(1, 2, 4, 4)).sum() for _ in range(2)]
        for loss in losses:
            loss.backward()
    assert len(tool.analyzed) == 1
    assert len(tool.ran) == 2


# What outputs an analysis is shown


class Outputs(amanda.Tool):
    """Looks at backward operators when what they give is known."""

    def __init__(self, insertion: str) -> None:
        super().__init__()
        self.insertion = insertion
        self.seen: list[Tensor] = []
        self.add_inst_for_op(self.analyze, backward=True, require_outputs=True, ops=["exp"])

    def analyze(self, ctx: amanda.OpContext) -> None:
        self.seen += ctx.grad_inputs
        getattr(ctx, self.insertion)(lambda grad: grad * 10)


@pytest.mark.parametrize("insertion", ["insert_after_backward_op", "replace_backward_op"])
def test_what_is_inserted_when_its_outputs_are_known_takes_effect_at_once(insertion: str) -> None:
    x, tool = leaf(), Outputs(insertion)
    with amanda.apply(tool):
        (3 * x.exp()).sum().backward()
    assert torch.allclose(tool.seen[0], 3 * X.exp())
    expected = 30 * X.exp() if insertion == "insert_after_backward_op" else torch.full_like(X, 30)
    assert torch.allclose(x.grad, expected)


def test_inserting_before_an_operator_that_has_run_is_refused() -> None:
    x = leaf()
    with amanda.apply(Outputs("insert_before_backward_op")):
        y = x.exp().sum()
        with pytest.raises(amanda.UnsupportedError, match="/ExpBackward0"):
            y.backward()


# What they may change


def test_a_routine_before_sees_and_changes_what_comes_in() -> None:
    x = leaf()
    with amanda.apply(Insert("insert_before_backward_op", "exp", lambda g: g * 10)):
        (3 * x.exp()).sum().backward()
    assert torch.allclose(x.grad, 30 * X.exp())


def test_a_routine_after_changes_one_of_what_goes_out() -> None:
    a, b = leaf(), leaf()
    change = Insert("insert_after_backward_op", "mul", lambda g: g * 10, grad_inputs=[1])
    with amanda.apply(change):
        (a * b).sum().backward()
    assert torch.equal(a.grad, X)
    assert torch.equal(b.grad, X * 10)


def test_a_replacement_gives_what_goes_out() -> None:
    a, b = leaf(), leaf()
    with amanda.apply(Insert("replace_backward_op", "mul", lambda g: (g, None))):
        (a * b).sum().backward()
    assert torch.equal(a.grad, torch.ones_like(X))
    assert torch.equal(b.grad, X)  # None leaves it


def test_only_the_operator_asked_for_is_changed() -> None:
    model, plain = ConvNet(), ConvNet()
    plain.load_state_dict(model.state_dict())
    x = torch.randn(1, 2, 4, 4)
    plain.conv.weight.register_hook(lambda grad: grad * 10)
    plain(x).sum().backward()
    change = Insert(
        "insert_after_backward_op", "ConvolutionBackward0", lambda g: g * 10, grad_inputs=[1]
    )
    with amanda.apply(change):
        model(x).sum().backward()
    for parameter, reference in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(parameter.grad, reference.grad)


@pytest.mark.parametrize(
    ("routine", "message"),
    [
        (lambda g: (g, g), "expected 1 tensor to be returned, got 2"),
        (lambda g: g.double(), "dtype"),
        (lambda g: "no", "not a tensor"),
    ],
)
def test_a_wrong_return_value_names_the_backward_operator(routine, message: str) -> None:
    x = leaf()
    with amanda.apply(Insert("insert_before_backward_op", "exp", routine)):
        y = x.exp().sum()
        with pytest.raises(amanda.RoutineError, match=message) as raised:
            y.backward()
    assert raised.value.operator_id.endswith("/ExpBackward0")
    assert raised.value.point == "before_backward_op"


def test_the_model_is_usable_after_an_error_in_a_routine() -> None:
    x = leaf()

    def fail(*grads: Tensor | None) -> None:
        raise ZeroDivisionError

    with amanda.apply(Insert("insert_after_backward_op", "exp", fail)):
        y = x.exp().sum()
        with pytest.raises(amanda.RoutineError):
            y.backward()
    x.exp().sum().backward()
    assert torch.equal(x.grad, X.exp())


# What it leaves alone


def test_forward_tools_see_nothing_of_the_backward_pass() -> None:
    x, tool = leaf(), Record()
    with amanda.apply(tool):
        y = x.exp()
        (y * y + y).sum().backward()  # where autograd sums up gradients
        torch.autograd.grad((x * x).sum(), x)
        torch.autograd.backward([(x * x).sum()])
    assert sorted(set(tool.ran)) == [
        "add", "exp", "mul", "mul#2", "mul#3", "sum", "sum#2", "sum#3",
    ]  # fmt: skip


def test_no_clones_of_in_place_operators_show() -> None:
    x, tool = leaf(), BackwardWatch()
    with amanda.apply(tool, Insert("insert_on_grad_inputs", "relu_", lambda g: None)):
        x.sin().relu_().sum().backward()
    assert tool.ran == ["SumBackward0", "ReluBackward0", "SinBackward0"]
