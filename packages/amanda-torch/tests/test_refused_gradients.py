"""Gradients that routines return and that cannot stand for those they were given."""

import copy

import amanda
import pytest
import torch
from amanda.testing.probes import Insert, Watch
from torch import nn


@pytest.mark.parametrize(
    ("insertion", "chosen"),
    [
        ("insert_on_grad_inputs", {"inputs": ["weight"]}),
        ("insert_before_backward_op", {"grad_outputs": [0]}),
    ],
)
def test_another_shape_is_an_error_that_names_the_tool(insertion, chosen):
    layer = nn.Linear(3, 4)
    cut = Insert(insertion, "linear", lambda grad: grad[:1], **chosen)
    with (
        amanda.apply(cut),
        pytest.raises(
            amanda.RoutineError, match=r"Insert.*returned shape .* for a gradient of shape"
        ),
    ):
        layer(torch.ones(2, 3)).sum().backward()


def jacobian(vectorize, create_graph):
    x = torch.tensor([1.0, 2.0])
    return torch.autograd.functional.jacobian(
        lambda v: (v * v).sin(), x, create_graph=create_graph, vectorize=vectorize
    )


@pytest.mark.parametrize("insertion", ["insert_on_grad_inputs", "insert_after_backward_op"])
def test_the_gradient_of_a_batch_is_not_replaced_where_its_graph_would_be_lost(insertion):
    double = Insert(insertion, "sin", lambda grad: grad * 2)
    with amanda.apply(double):
        expected = jacobian(vectorize=False, create_graph=True)
        assert expected.requires_grad
        assert torch.equal(jacobian(vectorize=True, create_graph=False), expected)
        with pytest.raises(
            amanda.UnsupportedError, match=r"'sin.*Insert substitutes.*use torch\.func\.jacrev"
        ):
            jacobian(vectorize=True, create_graph=True)


def test_a_variable_is_copied_with_what_holds_it():
    kept = []
    with amanda.apply(Watch(lambda ctx: kept.append(ctx.variable("scale", 2.0)), "linear")):
        nn.Linear(3, 4)(torch.ones(2, 3))
    (variable,) = kept
    twin = copy.deepcopy(variable)
    variable.assign(3.0)
    assert (float(variable), float(twin)) == (3.0, 2.0)
    assert float(twin.assign(4.0)) == 4.0
