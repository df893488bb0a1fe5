"""Gradients that routines return and that cannot stand for those they were given."""

import copy

import amanda
import pytest
import torch
from torch import nn


class Cut(amanda.Tool):
    """Returns part of a gradient."""

    def __init__(self, backward):
        super().__init__()
        if backward:
            self.add_inst_for_op(self.analyze_node, backward=True, ops=["linear"])
        else:
            self.add_inst_for_gradient(self.analyze, ops=["linear"])

    def analyze(self, ctx):
        ctx.insert_on_grad_inputs(lambda grad: grad[:1], inputs=["weight"])

    def analyze_node(self, ctx):
        ctx.insert_before_backward_op(lambda grad: grad[:1], grad_outputs=[0])


@pytest.mark.parametrize("backward", [False, True])
def test_another_shape_is_an_error_that_names_the_tool(backward):
    layer = nn.Linear(3, 4)
    with (
        amanda.apply(Cut(backward)),
        pytest.raises(amanda.RoutineError, match=r"Cut.*returned shape .* for a gradient of shape"),
    ):
        layer(torch.ones(2, 3)).sum().backward()


def test_a_variable_is_copied_with_what_holds_it():
    class Keep(amanda.Tool):
        def __init__(self):
            super().__init__()
            self.add_inst_for_op(self.analyze, ops=["linear"])

        def analyze(self, ctx):
            self.variable = ctx.variable("scale", 2.0)

    tool = Keep()
    with amanda.apply(tool):
        nn.Linear(3, 4)(torch.ones(2, 3))
    twin = copy.deepcopy(tool.variable)
    tool.variable.assign(3.0)
    assert (float(tool.variable), float(twin)) == (3.0, 2.0)
    assert float(twin.assign(4.0)) == 4.0
