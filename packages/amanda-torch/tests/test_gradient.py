"""The gradient of an operator as a whole: lined up with its outputs and inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import amanda
import pytest
import torch
from amanda.testing.probes import Insert
from torch import Tensor, nn
from torch.nn import functional
from watching import GradientWatch

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]])
ONES = torch.ones_like(X)


def leaf(tensor: Tensor = X) -> Tensor:
    return tensor.clone().requires_grad_()


def times_ten(*grads: Tensor | None) -> list[Tensor | None]:
    return [None if grad is None else grad * 10 for grad in grads]


# What lines up with what


def test_they_line_up_with_outputs_and_inputs() -> None:
    layer, x = nn.Linear(3, 2), leaf()
    tool = GradientWatch(ops=["linear"])
    with amanda.apply(tool):
        y = layer(x)
        y.square().sum().backward()
    ((dy,),) = tool.outputs["linear"]
    ((dx, dw, db),) = tool.inputs["linear"]
    assert torch.equal(dy, 2 * y)
    assert torch.equal(dx, x.grad)
    assert torch.equal(dw, layer.weight.grad)
    assert torch.equal(db, layer.bias.grad)


def test_an_analysis_is_shown_the_gradients_of_the_inputs() -> None:
    tool = GradientWatch(ops=["linear", "view", "sin_"])
    with amanda.apply(tool):
        nn.Linear(3, 2)(leaf()).view(-1).sin_().sum().backward()
    assert len(tool.shown) == 3
    for id, shown in tool.shown.items():
        ((*given,),) = tool.inputs[id]
        for one, other in zip(shown, given, strict=True):
            assert torch.equal(one, other)


def test_what_an_operator_is_made_of_below_autograd_has_no_gradient_of_its_own() -> None:
    """As PyTorch's attention transposes what it is given, and transposes it back."""
    x, tool = leaf(torch.rand(1, 2, 3, 4)), GradientWatch(ops=["transpose"])
    (expected,) = torch.autograd.grad(functional.scaled_dot_product_attention(x, x, x).sum(), x)
    with amanda.apply(tool, Insert("insert_before_op", ["transpose"], Tensor.clone)):
        functional.scaled_dot_product_attention(x, x, x).sum().backward()
    assert torch.equal(x.grad, expected)
    assert not tool.inputs


def test_an_operand_used_twice_has_its_share_at_each_place() -> None:
    x, tool = leaf(), GradientWatch(ops=["mul", "sub"])
    with amanda.apply(tool):
        (x * x - x).sum().backward()
    ((left, right),) = tool.inputs["mul"]
    assert torch.equal(left, X)
    assert torch.equal(right, X)
    ((square, minus),) = tool.inputs["sub"]
    assert torch.equal(square, ONES)
    assert torch.equal(minus, -ONES)
    assert torch.equal(x.grad, 2 * X - 1)


def test_a_tensor_used_by_two_operators_has_the_share_of_each() -> None:
    x, tool = leaf(), GradientWatch(ops=["sin", "exp"])
    with amanda.apply(tool):
        y = x * 1
        (y.sin() + y.exp()).sum().backward()
    assert torch.equal(tool.inputs["sin"][0][0], X.cos())
    assert torch.equal(tool.inputs["exp"][0][0], X.exp())


def test_a_shared_module_has_the_share_of_each_call() -> None:
    layer = nn.Linear(3, 3)
    tool = GradientWatch(ops=["linear"])
    with amanda.apply(tool):
        nn.Sequential(layer, nn.Tanh(), layer)(X).sum().backward()
    first, second = tool.inputs["0/linear"][0], tool.inputs["0/linear#2"][0]
    assert first[0] is None  # the model's own input
    assert torch.allclose(first[1] + second[1], layer.weight.grad)
    assert torch.allclose(first[2] + second[2], layer.bias.grad)


def test_what_needs_no_gradient_has_none() -> None:
    layer = nn.Linear(3, 2)
    layer.weight.requires_grad_(False)
    tool = GradientWatch(ops=["linear"])
    with amanda.apply(tool):
        layer(X).sum().backward()
    ((dx, dw, db),) = tool.inputs["linear"]
    assert dx is None
    assert dw is None
    assert torch.equal(db, torch.full((2,), 2.0))


def test_an_absent_input_takes_no_place() -> None:
    x, weight = leaf(), leaf(torch.randn(2, 3))
    tool = GradientWatch(ops=["linear"])
    with amanda.apply(tool):
        functional.linear(x, weight).sum().backward()
    ((dx, dw),) = tool.inputs["linear"]
    assert torch.equal(dx, x.grad)
    assert torch.equal(dw, weight.grad)


def test_an_output_that_nothing_uses_has_none() -> None:
    x, tool = leaf(), GradientWatch(ops=["lstm"])
    with amanda.apply(tool):
        _, (h, _) = nn.LSTM(3, 4)(x)
        h.sum().backward()
    ((sequence, hidden, cell),) = tool.outputs["lstm"]
    assert sequence is None
    assert torch.equal(hidden, torch.ones(1, 1, 4))
    assert cell is None
    assert torch.equal(tool.inputs["lstm"][0][0].squeeze(1), x.grad)


def test_an_output_that_cannot_be_differentiated_has_none() -> None:
    x, tool = leaf(), GradientWatch(ops=["sort"])
    with amanda.apply(tool):
        x.sort(1).values.cumsum(1).sum().backward()
    ((values, indices),) = tool.outputs["sort"]
    assert torch.equal(values, torch.tensor([[3.0, 2.0, 1.0]] * 2))
    assert indices is None


def test_elements_of_a_list_have_theirs() -> None:
    a, b = leaf(), leaf()
    tool = GradientWatch(ops=["cat"])
    with amanda.apply(tool):
        (torch.cat([a, X, b]) * torch.arange(6.0)[:, None]).sum().backward()
    ((da, constant, db),) = tool.inputs["cat"]
    assert torch.equal(da, a.grad)
    assert constant is None
    assert torch.equal(db, b.grad)


def test_an_in_place_activation_and_the_convolution_before_it() -> None:
    conv, x, tool = nn.Conv2d(1, 2, 1), leaf(X[None]), GradientWatch(ops=["conv2d", "relu_"])
    with amanda.apply(tool):
        nn.Sequential(conv, nn.ReLU(inplace=True))(x).square().sum().backward()
    with torch.no_grad():
        z = conv(X[None])
    after = 2 * z.relu()
    assert torch.equal(tool.outputs["1/relu_"][0][0], after)
    assert torch.equal(tool.inputs["1/relu_"][0][0], after)
    assert torch.equal(tool.outputs["0/conv2d"][0][0], after)
    assert torch.equal(tool.inputs["0/conv2d"][0][0], x.grad)
    assert torch.equal(tool.inputs["0/conv2d"][0][1], conv.weight.grad)


def test_a_custom_function_has_one() -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor, y):
            ctx.factor = factor
            return x * factor + y

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.factor, None, grad

    x, y, tool = leaf(), leaf(), GradientWatch(ops=["Scaled"])
    with amanda.apply(tool):
        Scaled.apply(x, 3, y).sum().backward()
    ((dx, dy),) = tool.inputs["Scaled"]
    assert torch.equal(dx, 3 * ONES)
    assert torch.equal(dy, ONES)


# Views, which stay linked to what they look at


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "view": lambda x: x.view(3, 2),
    "transpose": lambda x: x.transpose(0, 1),
    "expand": lambda x: x.expand(4, 2, 3),
    "slice": lambda x: x[:, 1:],
    "reshape": lambda x: x.T.reshape(6),
    "contiguous": lambda x: x.contiguous(),
    "flatten": lambda x: x.flatten(),
    "to": lambda x: x.to(torch.float64),
}


@pytest.mark.parametrize("look", VIEWS.values(), ids=VIEWS.keys())
def test_the_gradient_of_a_view_is_seen(look: Callable[[Tensor], Tensor]) -> None:
    x, plain = leaf(), leaf()
    tool = GradientWatch()
    with amanda.apply(tool):
        y = look(x * 1)
        (y * y).sum().backward()
    look(plain).square().sum().backward()
    assert torch.equal(x.grad, plain.grad)
    for id, shown in tool.shown.items():
        for one, other in zip(shown, tool.inputs[id][0], strict=True):
            assert (one is None) == (other is None)
            assert one is None or torch.equal(one, other)
    assert torch.equal(tool.outputs["mul"][0][0], plain.grad)


def test_views_that_share_a_node_are_seen_together() -> None:
    x, tool = leaf(), GradientWatch(ops=["unbind"])
    with amanda.apply(tool):
        first, _, third = (x * 1).unbind(1)
        (first * third).sum().backward()
    ((d1, d2, d3),) = tool.outputs["unbind"]
    assert torch.equal(d1, X[:, 2])
    assert d2 is None
    assert torch.equal(d3, X[:, 0])
    assert torch.equal(tool.inputs["unbind"][0][0], x.grad)


def test_views_with_nodes_of_their_own_are_seen_one_by_one() -> None:
    x, tool = leaf(), GradientWatch(ops=["tensor_split"])
    with amanda.apply(tool):
        left, right = (x * 1).tensor_split([1], dim=1)
        (left.sum() * 2 + right.sum() * 3).backward()
    assert len(tool.outputs["tensor_split"]) == 2
    parts = [given for (given,) in tool.inputs["tensor_split"]]
    assert torch.equal(parts[0] + parts[1], x.grad)
    assert torch.equal(x.grad, torch.tensor([[2.0, 3.0, 3.0]] * 2))


def test_the_gradient_of_a_view_is_changed() -> None:
    x = leaf()
    with amanda.apply(Insert("insert_on_grad_outputs", "tensor_split", times_ten)):
        left, right = (x * 1).tensor_split([1], dim=1)
        (left.sum() * 2 + right.sum() * 3).backward()
    assert torch.equal(x.grad, torch.tensor([[20.0, 30.0, 30.0]] * 2))


@pytest.mark.parametrize(
    "share",
    [
        lambda x: x.view(3, 2),
        lambda x: x[0],
        lambda x: x.tensor_split(2)[1],
        lambda x: functional.dropout(x, 0.5, training=False),
        lambda x: torch.conj_physical(x),
        lambda x: torch.atleast_1d(x),
        lambda x: x.contiguous(),
        lambda x: x.to(torch.float32),
    ],
    ids=["view", "select", "tensor_split", "dropout", "conj", "atleast", "contiguous", "to"],
)
def test_what_is_written_to_shared_memory_is_in_the_gradient(share) -> None:
    x, plain = leaf(), leaf()
    for start in (x, plain):
        tools = [GradientWatch()] if start is x else []
        with amanda.apply(*tools):
            y = start * 1
            share(y).mul_(3)
            (y * y).sum().backward()
    assert torch.equal(x.grad, plain.grad)
    assert not torch.equal(x.grad, 2 * X)


def test_what_is_written_through_a_view_and_then_to_its_base_is_in_the_gradient() -> None:
    def run(x: Tensor) -> Tensor:
        y = x * 1
        view = y.view(3, 2)
        view.mul_(3)
        y.mul_(5)
        return y.square().sum() + view.sum()

    x, plain = leaf(), leaf()
    run(plain).backward()
    with amanda.apply(GradientWatch()):
        run(x).backward()
    assert torch.equal(x.grad, plain.grad)


# What changes what


@pytest.mark.parametrize(
    ("insertion", "options", "a_factor", "b_factor"),
    [
        ("insert_on_grad_outputs", {}, 10, 10),
        ("insert_on_grad_inputs", {}, 10, 10),
        ("insert_on_grad_inputs", {"inputs": [0]}, 10, 1),
        ("insert_on_grad_inputs", {"inputs": [-1]}, 1, 10),
    ],
)
def test_replaced_gradients_go_where_they_belong(
    insertion: str, options: dict, a_factor: int, b_factor: int
) -> None:
    a, b = leaf(), leaf()
    with amanda.apply(Insert(insertion, "mul", times_ten, **options)):
        (a * b + a).sum().backward()
    assert torch.equal(a.grad, X * a_factor + 1)
    assert torch.equal(b.grad, X * b_factor)


@pytest.mark.parametrize("factor", [1.0, 10.0])
@pytest.mark.parametrize("type", ["conv2d", "relu_", "add_", "batch_norm", "cat", "select"])
def test_a_change_at_one_operator_is_what_a_hook_on_its_output_does(
    type: str, factor: float
) -> None:
    def model(x: Tensor, hook: Callable[[str, Tensor], None]) -> Tensor:
        y = functional.conv2d(x, weight)
        hook("conv2d", y)
        y = functional.batch_norm(y, None, None, training=True)
        hook("batch_norm", y)
        y = functional.relu_(y)
        hook("relu_", y)
        y = torch.cat([y, x], 1)
        hook("cat", y)
        y = y.add_(1)
        hook("add_", y)
        z = y[:, 0]
        hook("select", z)
        return z.square().sum() + y.sum()

    x = torch.randn(2, 5, 2, 2)
    weight = torch.randn(5, 5, 1, 1, requires_grad=True)

    def scale(name: str, tensor: Tensor) -> None:
        if name == type:
            tensor.register_hook(lambda grad: grad * factor)

    (expected,) = torch.autograd.grad(model(x, scale), weight)
    change = Insert("insert_on_grad_outputs", type, lambda g: g * factor)
    with amanda.apply(change):
        (actual,) = torch.autograd.grad(model(x, lambda *_: None), weight)
    assert torch.equal(actual, expected)


def test_routines_see_what_the_one_before_returned() -> None:
    x = leaf()
    tools = [
        Insert("insert_on_grad_outputs", "exp", lambda g: g * 2),
        Insert("insert_on_grad_outputs", "exp", lambda g: g + 1),
    ]
    with amanda.apply(*tools):
        x.exp().sum().backward()
    assert torch.allclose(x.grad, 3 * X.exp())


def test_a_routine_may_stop_a_gradient() -> None:
    a, b = leaf(), leaf()
    with amanda.apply(Insert("insert_on_grad_inputs", "mul", lambda g: g * 0, inputs=[1])):
        (a * b).sum().backward()
    assert torch.equal(a.grad, X)
    assert torch.equal(b.grad, torch.zeros_like(X))


def test_a_view_and_a_plain_operator_report_the_same_errors() -> None:
    for type, run in (("view", lambda x: x.view(-1)), ("exp", torch.exp)):
        with amanda.apply(Insert("insert_on_grad_outputs", type, lambda g: (g, g))):
            y = run(leaf()).sum()
            with pytest.raises(amanda.RoutineError, match="expected 1 tensor") as raised:
                y.backward()
        assert raised.value.point == "on_grad_outputs"
        assert raised.value.operator_id.startswith(type)
