"""What is spared when routines only observe."""

import amanda
import pytest
import torch


class After(amanda.Tool):
    def __init__(self, routine):
        super().__init__()
        self.add_inst_for_op(lambda ctx: ctx.insert_after_op(routine))


def observe(*outputs) -> None:
    pass


def silent(*outputs):
    pass


def in_place_relu(routine):
    x = torch.randn(4, requires_grad=True)
    with amanda.apply(After(routine)):
        return torch.relu_(x * 1.0)


@pytest.mark.parametrize("routine", [observe, silent])
def test_an_observed_in_place_operator_runs_in_place(routine):
    assert in_place_relu(routine).grad_fn.name() == "ReluBackward0"


@pytest.mark.parametrize("routine", [observe, silent])
def test_gradients_are_those_of_the_plain_operator(routine):
    x = torch.randn(4, requires_grad=True)
    with amanda.apply(After(routine)):
        (x * 1.0).relu_().square().sum().backward()
    assert torch.equal(x.grad, 2 * x.detach().clamp(min=0))
