"""The PyTorch driver on whole models: untouched results, stable operators, right gradients."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from architectures import ARCHITECTURES, loss_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from architectures import Example
    from torch import Tensor

STEPS = 3
architectures = pytest.mark.parametrize("build", ARCHITECTURES.values(), ids=ARCHITECTURES.keys())


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Sums in one order, so that two runs can be compared to the bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Observer(amanda.Tool):
    """Looks at every operator in every way and from every point, and changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[str] = []
        self.executions: Counter[str] = Counter()
        self.add_inst_for_op(self.forward)
        self.add_inst_for_op(self.backward, backward=True)
        self.add_inst_for_gradient(self.gradient)

    def forward(self, ctx: amanda.OpContext) -> None:
        self.operators.append(ctx.op.id)
        ctx.insert_before_op(self.count, id=ctx.op.id)
        ctx.insert_after_op(self.look)

    def backward(self, ctx: amanda.OpContext) -> None:
        ctx.insert_before_backward_op(self.look)
        ctx.insert_after_backward_op(self.look)

    def gradient(self, ctx: amanda.OpContext) -> None:
        assert len(ctx.grad_inputs) == len(ctx.inputs)
        assert len(ctx.grad_outputs) == len(ctx.outputs)
        ctx.insert_on_grad_outputs(self.look)
        ctx.insert_on_grad_inputs(self.look)

    def count(self, *tensors: Tensor, id: str) -> None:
        self.executions[id] += 1

    def look(self, *tensors: Tensor | None) -> None:
        for tensor in tensors:
            if tensor is not None:
                tensor.detach().clone()


def train(build: Callable[[], Example], *tools: amanda.Tool) -> dict[str, Any]:
    """Steps of training, with an evaluation in between, and all that they leave behind."""
    torch.manual_seed(0)
    model, inputs = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(1)
    left: dict[str, Any] = {"outputs": [], "losses": [], "gradients": []}
    with amanda.apply(*tools) if tools else contextlib.nullcontext():
        for step in range(STEPS):
            model.train(step != 1)
            optimizer.zero_grad()
            output = model(**inputs)
            loss = loss_of(output)
            loss.backward()
            if model.training:
                optimizer.step()
            left["outputs"].append(detached(output))
            left["losses"].append(loss.detach())
            left["gradients"].append({n: p.grad for n, p in model.named_parameters()})
    left["random"] = torch.get_rng_state()
    left["saved"] = model.state_dict()
    left["optimizer"] = optimizer.state_dict()["state"]
    return left


def detached(output: Any) -> Any:
    """What a model returned, without its graph."""
    if isinstance(output, torch.Tensor):
        return output.detach()
    if isinstance(output, dict):
        return {name: detached(value) for name, value in output.items()}
    if isinstance(output, (list, tuple)):
        return [detached(value) for value in output]
    return output


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Where two structures of tensors differ, to the bit."""
    if isinstance(one, torch.Tensor):
        one, other = one.detach().contiguous(), other.detach().contiguous()
        same = one.dtype == other.dtype and one.shape == other.shape
        if same and torch.equal(one.view(-1).view(torch.uint8), other.view(-1).view(torch.uint8)):
            return []
        return [path]
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        return [d for key in one for d in differences(one[key], other[key], f"{path}/{key}")]
    if isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        pairs = enumerate(zip(one, other, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{path}/{i}")]
    return [] if one == other or type(one).__module__.startswith("transformers") else [path]


@functools.cache
def observed_training(build: Callable[[], Example]) -> tuple[Observer, dict[str, Any]]:
    observer = Observer()
    return observer, train(build, observer)


@architectures
def test_an_observed_training_is_bit_identical(build: Callable[[], Example]) -> None:
    _, left = observed_training(build)
    assert differences(train(build), left) == []


@architectures
def test_operators_are_the_same_in_training_and_evaluation(build: Callable[[], Example]) -> None:
    observer, _ = observed_training(build)
    assert len(set(observer.operators)) == len(observer.operators) > 5
    in_modules = [id for id in observer.operators if "/" in id]
    trainings = STEPS - 1  # in which some, such as dropped paths, run alone
    assert {observer.executions[id] for id in in_modules} <= {STEPS, trainings}


class OperatorGradients(amanda.Tool):
    """Holds the gradient of each operator to autograd's, for the same operator run on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.compared = 0
        self.add_inst_for_gradient(self.analyze)

    @torch.enable_grad()
    def analyze(self, ctx: amanda.OpContext) -> None:
        if ctx.op.type.endswith("_"):
            return  # its input is no longer what it was
        inputs = [
            tensor.detach().requires_grad_(grad is not None)
            for tensor, grad in zip(ctx.inputs, ctx.grad_inputs, strict=True)
        ]
        outputs = run_again(ctx, inputs)
        flowing = [i for i, grad in enumerate(ctx.grad_outputs) if grad is not None]
        expected = torch.autograd.grad(
            [outputs[i] for i in flowing],
            [tensor for tensor in inputs if tensor.requires_grad],
            [ctx.grad_outputs[i] for i in flowing],
        )
        actual = [grad for grad in ctx.grad_inputs if grad is not None]
        torch.testing.assert_close(actual, list(expected), msg=lambda text: f"{ctx.op}: {text}")
        self.compared += 1


def run_again(ctx: amanda.OpContext, inputs: list[Tensor]) -> list[Tensor]:
    """The outputs of an operator for other inputs, from its schema alone."""
    arguments: dict[str, Any] = dict(ctx.attrs)
    for name, tensor in zip(ctx.input_names, inputs, strict=True):
        base, _, place = name.rstrip("]").partition("[")
        if place:
            elements = arguments.setdefault(base, [])
            elements += [None] * (int(place) + 1 - len(elements))
            elements[int(place)] = tensor
        else:
            arguments[base] = tensor
    result = getattr(torch.ops.aten, ctx.op.type)(**arguments)
    return [result] if isinstance(result, torch.Tensor) else list(result)


@architectures
def test_the_gradient_of_each_operator_is_autograds(build: Callable[[], Example]) -> None:
    torch.manual_seed(0)
    model, inputs = build()
    model.eval()  # an operator that draws random numbers cannot be run again
    gradients = OperatorGradients()
    with amanda.apply(gradients):
        loss_of(model(**inputs)).backward()
    assert gradients.compared > 5
