"""What is spared when routines only observe."""

import amanda
import pytest
import torch
from amanda.testing.probes import after, nothing


def observe(*outputs) -> None:
    pass


def in_place_relu(routine):
    x = torch.randn(4, requires_grad=True)
    with amanda.apply(after(None, routine)):
        return torch.relu_(x * 1.0)


@pytest.mark.parametrize("routine", [observe, nothing])
def test_an_observed_in_place_operator_runs_in_place(routine):
    assert in_place_relu(routine).grad_fn.name() == "ReluBackward0"


@pytest.mark.parametrize("routine", [observe, nothing])
def test_gradients_are_those_of_the_plain_operator(routine):
    x = torch.randn(4, requires_grad=True)
    with amanda.apply(after(None, routine)):
        (x * 1.0).relu_().square().sum().backward()
    assert torch.equal(x.grad, 2 * x.detach().clamp(min=0))
