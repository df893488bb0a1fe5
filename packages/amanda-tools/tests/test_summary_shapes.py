"""The shapes in a summary are those of the calls of modules, not of the operators in them."""

import amanda
import pytest
import torch
from amanda_tools import Summary
from torch import nn


class Logged(nn.Module):
    """Computes something for itself after what it returns."""

    def forward(self, mask, x):
        y = x * mask.sum()
        self.mean = y.mean()
        return {"y": y, "mask": mask}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Logged()

    def forward(self, x):
        noise = torch.ones(7).sum()
        return self.inner(mask=torch.ones(4, 1), x=x + noise)["y"]


@pytest.fixture(scope="module")
def rows():
    summary, model = Summary(), Model()
    with amanda.apply(summary):
        model(torch.ones(2, 3))
        model(torch.ones(5, 3))
    return {row.path: row for row in summary.rows()}


def test_the_model_has_those_of_its_first_call(rows):
    assert (rows[""].input_shape, rows[""].output_shape) == ([2, 3], [2, 3])


def test_a_module_has_that_of_what_it_returns_whatever_runs_last_in_it(rows):
    assert rows["inner"].output_shape == [2, 3]


def test_a_module_has_that_of_what_it_is_given_first_whatever_runs_first_in_it(rows):
    assert rows["inner"].input_shape == [4, 1]
