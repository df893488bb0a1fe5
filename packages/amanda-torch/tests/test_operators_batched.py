"""Under ``vmap`` tools do to each sample what they do when the samples run one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import Insert, Observe, under
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, stack_module_state, vmap
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

unwrapped: Callable[[Tensor], Tensor] = torch._C._functorch.get_unwrapped
W = torch.randn(4, 4)
SAMPLES = torch.randn(3, 4, 4)


class Cubed(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad


def written(x: Tensor) -> Tensor:
    y = x * 2
    y[0] = x[1] * 3
    return y


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "layer": lambda x: functional.linear(x, W).tanh(),
    "views": lambda x: x.t().reshape(-1).view(2, -1).transpose(0, 1).sum(0),
    "views of one": lambda x: torch.cat([a.exp() for a in x.split(2, -1)], -1),
    "unbind": lambda x: torch.stack([a * a for a in x.unbind(0)]),
    "part": lambda x: x[:, 1:3] * 2,
    "written": written,
    "nothing to drop": lambda x: functional.dropout(x, 0.5, False) * x,
    "several results": lambda x: x.max(-1)[0],
    "custom function": lambda x: Cubed.apply(x),  # type: ignore[no-untyped-call]
}


class Program(nn.Module):
    """A function within a module, so that tools can tell it from what is around it."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def in_modules(insertion: str, routine: Callable[..., Any], **options: Any) -> Insert:
    """Inserts a routine at every operator of modules."""
    return Insert(insertion, None, routine, where=lambda operator: bool(operator.scope), **options)


def scaled(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """By what the whole of a sample is, so that a batch gives something else."""
    return tuple(
        None if t is None or not t.is_floating_point() else t / (1 + t.abs().max()) for t in tensors
    )


INSERTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "before": ("insert_before_op", {}),
    "after": ("insert_after_op", {}),
    "before, differentiable": ("insert_before_op", {"differentiable": True}),
    "after, differentiable": ("insert_after_op", {"differentiable": True}),
    "gradients of outputs": ("insert_on_grad_outputs", {}),
    "gradients of inputs": ("insert_on_grad_inputs", {}),
}


def gradient_by_loop(model: nn.Module) -> Tensor:
    samples = SAMPLES.clone().requires_grad_()
    torch.stack([model(sample) for sample in samples]).square().sum().backward()
    assert samples.grad is not None
    return samples.grad


def gradient_by_vmap(model: nn.Module) -> Tensor:
    samples = SAMPLES.clone().requires_grad_()
    vmap(model)(samples).square().sum().backward()
    assert samples.grad is not None
    return samples.grad


def gradient_of_another_dimension(model: nn.Module) -> Tensor:
    samples = SAMPLES.clone().requires_grad_()
    vmap(model, in_dims=2)(samples.permute(1, 2, 0)).square().sum().backward()
    assert samples.grad is not None
    return samples.grad


def gradient_of_nested_vmap(model: nn.Module) -> Tensor:
    samples = SAMPLES.clone().requires_grad_()
    vmap(vmap(model))(samples[None]).square().sum().backward()
    assert samples.grad is not None
    return samples.grad


def grad_of_vmap(model: nn.Module) -> Tensor:
    gradient: Tensor = grad(lambda samples: vmap(model)(samples).square().sum())(SAMPLES)
    return gradient


def vmap_of_grad(model: nn.Module) -> Tensor:
    gradients: Tensor = vmap(grad(lambda sample: model(sample).square().sum()))(SAMPLES)
    return gradients


WAYS = [
    gradient_by_vmap,
    gradient_of_another_dimension,
    gradient_of_nested_vmap,
    grad_of_vmap,
    vmap_of_grad,
]
by_function = pytest.mark.parametrize("name", FUNCTIONS)


@by_function
@pytest.mark.parametrize("insertion", INSERTIONS)
def test_a_batch_is_instrumented_as_its_samples_are(name: str, insertion: str) -> None:
    model = nn.Sequential(Program(FUNCTIONS[name]))
    where, options = INSERTIONS[insertion]
    expected = under(in_modules(where, scaled, **options), lambda: gradient_by_loop(model))
    assert not torch.allclose(expected, gradient_by_loop(model))
    for gradient in WAYS:
        found = under(in_modules(where, scaled, **options), lambda g=gradient: g(model))  # type: ignore[misc]
        torch.testing.assert_close(found, expected, msg=gradient.__name__)


@by_function
@pytest.mark.parametrize("gradient", WAYS)
def test_observing_a_batch_changes_nothing(
    name: str, gradient: Callable[[nn.Module], Tensor]
) -> None:
    model = nn.Sequential(Program(FUNCTIONS[name]))
    assert torch.equal(under(Observe(), lambda: gradient(model)), gradient(model))


@pytest.mark.parametrize(
    ("op", "function", "reference"),
    [
        ("linear", lambda x: functional.linear(x, W), lambda g: g @ W),
        ("t", lambda x: x.t(), lambda g: g.t()),
    ],
    ids=["an operator", "a view"],
)
def test_an_analysis_is_shown_the_gradients_of_a_sample(
    op: str, function: Callable[[Tensor], Tensor], reference: Callable[[Tensor], Tensor]
) -> None:
    differences = []

    def analyze(ctx: amanda.OpContext) -> None:
        (grad_output,), grad_input = ctx.grad_outputs, ctx.grad_inputs[0]
        assert grad_input.shape == grad_output.shape == (4, 4)
        differences.append(unwrapped(grad_input - reference(grad_output)))

    tool = amanda.Tool()
    tool.add_inst_for_gradient(analyze, ops=[op])
    samples = SAMPLES.permute(1, 2, 0).clone().requires_grad_()
    under(tool, lambda: vmap(function, in_dims=2)(samples).square().sum().backward())
    (difference,) = differences
    torch.testing.assert_close(difference, torch.zeros_like(difference))


def test_backward_operators_of_a_batch_are_seen() -> None:
    types = []
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: types.append(ctx.backward_op.type), True, ops=["tanh"])
    samples = SAMPLES.clone().requires_grad_()
    under(tool, lambda: vmap(torch.tanh)(samples).sum().backward())
    assert types == ["TanhBackward0"]


def test_masked_weights_of_an_ensemble() -> None:
    models = [nn.Sequential(nn.Linear(4, 3), nn.Tanh()) for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    data = torch.randn(5, 4)

    def run(parameters: Any, buffers: Any) -> Tensor:
        output: Tensor = functional_call(models[0], (parameters, buffers), (data,))
        return output

    tool = amanda.Tool()
    tool.add_inst_for_op(
        lambda ctx: ctx.insert_before_op(lambda w: w * 0.5, inputs=["weight"]), ops=["linear"]
    )
    under(tool, lambda: vmap(run)(parameters, buffers).square().sum().backward())
    for number, model in enumerate(models):
        weight = (model[0].weight * 0.5).detach().requires_grad_()
        functional.linear(data, weight, model[0].bias).tanh().square().sum().backward()
        torch.testing.assert_close(parameters["0.weight"].grad[number], weight.grad)


def test_a_hessian_of_a_batch() -> None:
    tool = in_modules("insert_after_op", lambda y: y * 1.0)
    model = nn.Sequential(Program(torch.tanh))

    def loss(samples: Tensor) -> Tensor:
        return vmap(model)(samples).square().sum()

    data = torch.randn(2, 3)
    torch.testing.assert_close(under(tool, lambda: hessian(loss)(data)), hessian(loss)(data))
