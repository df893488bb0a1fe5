"""S3: substitutes get the gradients of what they stand for, as if written out by hand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import after, before, replace, under
from leaves import leaf
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

V = torch.randn(4, 4)


class Straight(torch.autograd.Function):
    """The reference: a value that stands for a tensor and passes its gradient on."""

    @staticmethod
    def forward(ctx: Any, original: Tensor, value: Tensor) -> Tensor:
        return value.detach().clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0], None


def straight(original: Tensor, value: Tensor) -> Tensor:
    result: Tensor = Straight.apply(original, value)
    return result


def gradients(output: Tensor, wrt: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Gradients for weights on the elements of the output that are all different."""
    weights = torch.arange(1.0, output.numel() + 1).view_as(output).to(output.dtype)
    return torch.autograd.grad(output, wrt, weights / output.numel(), allow_unused=True)


# A masked weight: dL/dx through the masked weight, dL/dW unmasked

INDICES = torch.tensor([[0, 2], [1, 2]])
WEIGHTED: dict[str, tuple[str, Callable[..., Tensor], list[Tensor], int]] = {
    # operator, what is run, its operands, which of them is the weight
    "linear": ("linear", functional.linear, [torch.randn(2, 3), torch.randn(4, 3)], 1),
    "linear with bias": (
        "linear",
        functional.linear,
        [torch.randn(2, 3), torch.randn(4, 3), torch.randn(4)],
        1,
    ),
    "matmul": ("matmul", torch.matmul, [torch.randn(2, 3), torch.randn(3, 4)], 1),
    "addmm": ("addmm", torch.addmm, [torch.randn(4), torch.randn(2, 3), torch.randn(3, 4)], 2),
    "bmm": ("bmm", torch.bmm, [torch.randn(2, 2, 3), torch.randn(2, 3, 4)], 1),
    "conv1d": ("conv1d", functional.conv1d, [torch.randn(2, 3, 6), torch.randn(4, 3, 3)], 1),
    "conv2d": (
        "conv2d",
        lambda x, w, b: functional.conv2d(x, w, b, stride=2, padding=1),
        [torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3), torch.randn(4)],
        1,
    ),
    "conv_transpose2d": (
        "conv_transpose2d",
        functional.conv_transpose2d,
        [torch.randn(2, 3, 4, 4), torch.randn(3, 2, 3, 3)],
        1,
    ),
    "embedding": ("embedding", lambda w: functional.embedding(INDICES, w), [torch.randn(3, 4)], 0),
    "layer_norm": (
        "layer_norm",
        lambda x, w, b: functional.layer_norm(x, (4,), w, b),
        [torch.randn(3, 4), torch.randn(4), torch.randn(4)],
        1,
    ),
    "batch_norm": (
        "batch_norm",
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        [torch.randn(5, 4), torch.randn(4), torch.randn(4)],
        1,
    ),
    "prelu": ("prelu", functional.prelu, [torch.randn(3, 4), torch.randn(4)], 1),
    "bilinear": (
        "bilinear",
        functional.bilinear,
        [torch.randn(2, 3), torch.randn(2, 4), torch.randn(5, 3, 4)],
        2,
    ),
    "attention": (
        "scaled_dot_product_attention",
        functional.scaled_dot_product_attention,
        [torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8), torch.randn(1, 2, 4, 8)],
        1,
    ),
    "einsum": (
        "einsum",
        lambda a, b: torch.einsum("ij,jk->ki", a, b),
        [torch.randn(2, 3), torch.randn(3, 4)],
        1,
    ),
}


@pytest.mark.parametrize(("op", "run", "operands", "which"), WEIGHTED.values(), ids=WEIGHTED)
def test_a_masked_weight(
    op: str, run: Callable[..., Tensor], operands: list[Tensor], which: int
) -> None:
    operands = [t.clone().requires_grad_() for t in operands]
    mask = (torch.randn_like(operands[which]) > 0).float()

    reference = list(operands)
    reference[which] = straight(operands[which], operands[which] * mask)
    expected = run(*reference)

    result = under(before(op, lambda w: w * mask, inputs=[which]), lambda: run(*operands))
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(gradients(result, operands), gradients(expected, operands))


def test_written_out_for_a_linear_layer() -> None:
    x, w, b, g = leaf(2, 3), leaf(4, 3), leaf(4), torch.randn(2, 4)
    mask = (torch.randn(4, 3) > 0).float()
    y = under(before("linear", lambda w: w * mask, inputs=[1]), lambda: functional.linear(x, w, b))
    y.backward(g)
    torch.testing.assert_close(x.grad, g @ (w * mask))
    torch.testing.assert_close(w.grad, g.t() @ x)
    torch.testing.assert_close(b.grad, g.sum(0))


# Operators that save their output, and others

UNARY: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "sigmoid": (torch.sigmoid, lambda x: x.sigmoid() * (1 - x.sigmoid())),
    "tanh": (torch.tanh, lambda x: 1 - x.tanh().square()),
    "exp": (torch.exp, torch.exp),
    "relu": (torch.relu, lambda x: (x > 0).to(x)),
    "sqrt": (lambda x: torch.sqrt(x), lambda x: 0.5 / x.sqrt()),
    "reciprocal": (torch.reciprocal, lambda x: -1 / x.square()),
    "sin": (torch.sin, torch.cos),
    "gelu": (
        functional.gelu,
        lambda x: (
            0.5 * (1 + torch.erf(x / math.sqrt(2)))
            + x * torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
        ),
    ),
    "silu": (functional.silu, lambda x: x.sigmoid() * (1 + x * (1 - x.sigmoid()))),
    "hardtanh": (functional.hardtanh, lambda x: (x.abs() < 1).to(x)),
    "neg": (torch.neg, lambda x: -torch.ones_like(x)),
}
unary = pytest.mark.parametrize(("op", "run", "derivative"), [(k, *v) for k, v in UNARY.items()])


@unary
def test_a_substituted_input(
    op: str, run: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> None:
    x = (V.abs() + 0.1).requires_grad_()
    y = under(before(op, lambda x: x * 2 + 1), lambda: run(x))
    (g,) = torch.autograd.grad(y.square().sum(), x)
    given = x.detach() * 2 + 1
    torch.testing.assert_close(y, run(given))
    torch.testing.assert_close(g, 2 * run(given) * derivative(given))


@unary
def test_a_substituted_output(
    op: str, run: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> None:
    x = (V.abs() + 0.1).requires_grad_()
    y = under(after(op, lambda y: y * 2 + 1), lambda: run(x))
    (g,) = torch.autograd.grad(y.square().sum(), x)
    torch.testing.assert_close(y, run(x) * 2 + 1)
    torch.testing.assert_close(g, 2 * y * derivative(x.detach()))


@unary
def test_a_replaced_operator_keeps_its_gradient(
    op: str, run: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> None:
    x = (V.abs() + 0.1).requires_grad_()
    y = under(replace(op, lambda x: x * 3), lambda: run(x))
    (g,) = torch.autograd.grad(y.square().sum(), x)
    torch.testing.assert_close(y, 3 * x)
    torch.testing.assert_close(g, 2 * 3 * x.detach() * derivative(x.detach()))


def test_softmax_saves_its_output() -> None:
    x = leaf(2, 4)
    y = under(after("softmax", lambda p: p * (p > 0.2)), lambda: x.softmax(-1))
    g = torch.randn(2, 4)
    y.backward(g)
    p = x.detach().softmax(-1)
    torch.testing.assert_close(y.detach(), p * (p > 0.2))
    torch.testing.assert_close(x.grad, p * (g - (g * p).sum(-1, keepdim=True)))


def test_several_outputs_each_pass_their_own_gradient() -> None:
    x = leaf(3, 5)
    values, indices = under(after("topk", lambda v, i: (v * 2, None)), lambda: x.topk(2))
    values.square().sum().backward()
    expected = torch.zeros(3, 5).scatter(1, indices, 2 * values.detach())
    torch.testing.assert_close(x.grad, expected)


def test_a_tensor_that_is_used_twice() -> None:
    x = leaf(4)
    under(before("mul", lambda a: a + 1, inputs=[0]), lambda: x * x).sum().backward()
    torch.testing.assert_close(x.grad, x.detach() + (x.detach() + 1))


# differentiable=True, alone and between others


@unary
def test_differentiable_routines_around_an_operator(
    op: str, run: Callable[[Tensor], Tensor], derivative: Callable[[Tensor], Tensor]
) -> None:
    x = (V.abs() + 0.1).requires_grad_()
    tools = [
        before(op, lambda x: x * x, differentiable=True),
        after(op, lambda y: y * 3, differentiable=True),
    ]
    y = under(tools, lambda: run(x))
    torch.testing.assert_close(y, 3 * run(x * x))
    (expected,) = torch.autograd.grad(3 * run(x * x).sum(), x)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], expected)


def test_a_differentiable_replacement() -> None:
    x, w = leaf(2, 3), leaf(4, 3)
    tool = replace("linear", lambda x, w: x.sin() @ w.cos().t(), differentiable=True)
    y = under(tool, lambda: functional.linear(x, w))
    expected = gradients(x.sin() @ w.cos().t(), [x, w])
    torch.testing.assert_close(gradients(y, [x, w]), expected)


def test_chains_of_both_kinds() -> None:
    """Each ``differentiable`` routine is differentiated where it is, the others pass through."""
    x = leaf(4)
    tools = [
        before("sin", lambda t: t * 2),  # passes straight
        before("sin", lambda t: t * t, differentiable=True),
        before("sin", lambda t: t + 5),  # passes straight
        after("sin", lambda t: t * 7, differentiable=True),
        after("sin", lambda t: t * 11),  # passes straight
        after("sin", lambda t: t.square(), differentiable=True),
    ]
    y = under(tools, lambda: x.sin())
    a = straight(x, x * 2)
    b = straight(a * a, a * a + 5)
    c = b.sin() * 7
    d = straight(c, c * 11)
    torch.testing.assert_close(y, d.square())
    torch.testing.assert_close(gradients(y, [x]), gradients(d.square(), [x]))


def test_a_differentiable_routine_may_change_shapes() -> None:
    x, w = leaf(4, 6), leaf(3, 3)
    tools = [
        before("linear", lambda x: x.view(4, 2, 3).mean(1), inputs=[0], differentiable=True),
        after("linear", lambda y: y.repeat(1, 2), differentiable=True),
    ]
    y = under(tools, lambda: functional.linear(x, w))
    expected = functional.linear(x.view(4, 2, 3).mean(1), w).repeat(1, 2)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(gradients(y, [x, w]), gradients(expected, [x, w]))


# Second derivatives


def test_double_backward_through_substitutes() -> None:
    x = leaf(4)
    tools = [before("sin", lambda t: t * 2), after("sin", lambda t: t * 3)]
    y = under(tools, lambda: x.sin())
    (g,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    s = x.detach() * 2
    # g = 2 y cos(2x), of which y passes straight to sin(2x), and 2x to x
    torch.testing.assert_close(g.detach(), 2 * 3 * s.sin() * s.cos())
    torch.testing.assert_close(h, 2 * s.cos().square() - 2 * 3 * s.sin() * s.sin())


# Views, and what is written through them


@pytest.mark.parametrize(
    ("op", "view"),
    [
        ("transpose", lambda t: t.transpose(0, 1)),
        ("reshape", lambda t: t.reshape(2, 8)),
        ("view", lambda t: t.view(16)),
        ("slice", lambda t: t[1:3]),
        ("select", lambda t: t[1]),
        ("permute", lambda t: t.permute(1, 0)),
        ("expand", lambda t: t.unsqueeze(0).expand(3, 4, 4)),
        ("unsqueeze", lambda t: t.unsqueeze(0)),
        ("diagonal", lambda t: t.diagonal()),
    ],
)
def test_a_view_with_a_substitute_that_is_written_to(
    op: str, view: Callable[[Tensor], Tensor]
) -> None:
    for tool in (before(op, lambda t: t * 2), after(op, lambda t: t * 2)):
        x = V.clone().requires_grad_()
        h = x * 1
        y = under(tool, lambda h=h: view(h))
        if op == "expand":
            y = y.clone()
        y.mul_(3)
        assert torch.equal(h, x)  # the view is of the substitute
        torch.testing.assert_close(y, view(x * 6))
        y.square().sum().backward()
        reference = V.clone().requires_grad_()
        (view(straight(reference, reference * 2)) * 3).square().sum().backward()
        torch.testing.assert_close(x.grad, reference.grad)


def test_observed_views_stay_views() -> None:
    x = V.clone().requires_grad_()
    h = x * 1
    y = under(after("transpose", lambda t: None), lambda: h.transpose(0, 1))
    y.mul_(3)
    torch.testing.assert_close(h, 3 * x)
    h.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((4, 4), 3.0))


# Number formats and memory


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_number_formats(dtype: torch.dtype) -> None:
    x, w = leaf(3, 4, dtype=dtype), leaf(4, 2, dtype=dtype)
    tools = [before("matmul", lambda w: w * 2, inputs=[1]), after("matmul", lambda y: y + 1)]
    y = under(tools, lambda: x @ w)
    assert y.dtype == dtype
    reference = straight(x @ straight(w, w * 2), x @ (w * 2) + 1)
    torch.testing.assert_close(y, reference)
    torch.testing.assert_close(gradients(y, [x, w]), gradients(reference, [x, w]))


def test_integers_and_booleans_have_no_gradient() -> None:
    i = torch.arange(4)
    assert torch.equal(under(before("add", lambda t: t * 2, inputs=[0]), lambda: i + i), 3 * i)
    mask = torch.tensor([True, False])
    assert torch.equal(under(after("logical_not", lambda t: ~t), lambda: mask.logical_not()), mask)
    weight = leaf(4, 3)
    tool = before("embedding", lambda i: i.flip(0), inputs=[1])
    under(tool, lambda: functional.embedding(i[:2], weight)).sum().backward()
    torch.testing.assert_close(weight.grad, torch.tensor([[1.0] * 3] * 2 + [[0.0] * 3] * 2))


def test_channels_last_is_kept() -> None:
    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last).requires_grad_()
    layer = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    plain = layer(x)
    tools = [before("conv2d", lambda w: w * 1, inputs=[1]), after("conv2d", lambda y: y * 1)]
    y = under(tools, lambda: layer(x))
    assert y.stride() == plain.stride()
    y.sum().backward()
    grads = [x.grad, layer.weight.grad]
    x.grad = layer.weight.grad = None
    plain.sum().backward()
    for watched, alone in zip(grads, [x.grad, layer.weight.grad], strict=True):
        assert watched.stride() == alone.stride()
        assert torch.equal(watched, alone)


# Modes of computation


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_without_gradients(guard: Callable[[], Any]) -> None:
    layer = nn.Linear(4, 4)
    for tool, expected in [
        (before("linear", lambda w: w * 2, inputs=[1]), V @ (2 * layer.weight).t() + layer.bias),
        (after("linear", lambda y: y * 2), 2 * layer(V)),
        (after("linear", lambda y: y * 2, differentiable=True), 2 * layer(V)),
        (replace("linear", lambda x, w, b: x), V),
    ]:
        with guard():
            result = under(tool, lambda: layer(V))
        assert not result.requires_grad
        assert result.is_inference() == (guard is torch.inference_mode) or result is V
        torch.testing.assert_close(result, expected.detach())


def test_gradients_switched_on_within() -> None:
    x = leaf(4)
    tool = after("sin", lambda y: y * 2)
    with torch.no_grad(), amanda.apply(tool):
        assert not x.sin().requires_grad
        with torch.enable_grad():
            y = x.sin()
    y.sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos())


def test_autocast() -> None:
    layer, x = nn.Linear(4, 4), leaf(3, 4)
    dtypes = []

    def double(w: Tensor) -> Tensor:
        dtypes.append(w.dtype)
        return w * 2

    tools = [before("linear", double, inputs=[1]), after("linear", double)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = under(tools, lambda: layer(x))
        reference = functional.linear(x, straight(layer.weight, layer.weight * 2), layer.bias)
    assert dtypes == [torch.float32, torch.bfloat16]
    assert y.dtype == torch.bfloat16
    wrt = [x, layer.weight, layer.bias]
    torch.testing.assert_close(y, reference * 2)
    torch.testing.assert_close(gradients(y, wrt), gradients(reference, wrt))


@pytest.mark.filterwarnings("ignore:.*jit.script.* is deprecated")
def test_torchscript() -> None:
    layer = nn.Linear(4, 4)
    script = torch.jit.script(nn.Sequential(layer, nn.ReLU()))
    for _ in range(3):  # its executor rewrites the program while it warms up
        script(V)
    y = under(before("linear", lambda w: w * 2, inputs=[1]), lambda: script(V))
    reference = functional.linear(V, straight(layer.weight, layer.weight * 2), layer.bias).relu()
    wrt = list(layer.parameters())
    torch.testing.assert_close(y, reference)
    torch.testing.assert_close(gradients(y, wrt), gradients(reference, wrt))


# Weights that are computed


@pytest.mark.parametrize(
    "parametrize",
    [
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        parametrizations.orthogonal,
        nn.utils.weight_norm,
    ],
    ids=["weight_norm", "spectral_norm", "orthogonal", "weight_norm by hooks"],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated")
def test_parametrized_weights(parametrize: Callable[[nn.Module], nn.Module]) -> None:
    layer = parametrize(nn.Linear(4, 4)).eval()
    wrt = list(layer.parameters())
    y = under(before("linear", lambda w: w * 2, inputs=[1]), lambda: layer(V))
    layer(V)  # computes the weight anew
    weight = layer.weight
    reference = functional.linear(V, straight(weight, weight * 2), layer.bias)
    torch.testing.assert_close(y, reference)
    torch.testing.assert_close(gradients(y, wrt), gradients(reference, wrt))


def test_a_weight_that_two_layers_share() -> None:
    one, other = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    other.weight = one.weight
    y = under(before("linear", lambda w: w * 2, inputs=[1]), lambda: other(one(V)))
    h = V @ (2 * one.weight).t()
    torch.testing.assert_close(y, h @ (2 * one.weight).t())
    y.sum().backward()
    g = torch.ones(4, 4)
    expected = g.t() @ h + (g @ (2 * one.weight)).t() @ V
    torch.testing.assert_close(one.weight.grad, expected.detach())


def test_training_a_masked_layer_converges_to_the_masked_solution() -> None:
    """The main use: a pruned weight that is trained on, here towards a sparse target."""
    torch.manual_seed(1)
    mask = (torch.rand(2, 6) > 0.5).float()
    target = torch.randn(2, 6) * mask
    layer = nn.Linear(6, 2, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.2)
    x = torch.randn(64, 6)
    with amanda.apply(before("linear", lambda w: w * mask, inputs=[1])):
        for _ in range(300):
            optimizer.zero_grad()
            functional.mse_loss(layer(x), x @ target.t()).backward()
            optimizer.step()
    torch.testing.assert_close(layer.weight.detach() * mask, target, atol=1e-3, rtol=1e-3)
