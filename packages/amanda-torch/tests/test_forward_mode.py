"""Forward-mode gradients (``torch.func.jvp`` and what is made of it) within a scope."""

import amanda
import pytest
import torch
from amanda.testing.probes import Insert, Record, Watch, before, nothing
from torch import nn
from torch.func import grad, hessian, jacfwd, jvp, vmap


def watch_gradient():
    return Watch(lambda ctx: None, "linear", gradient=True)


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return nn.Linear(3, 3)


X = torch.arange(6.0).reshape(2, 3)
TRANSFORMS = {
    "jvp": lambda f: jvp(f, (X,), (X + 1,))[1],
    "jacfwd": lambda f: jacfwd(f)(X),
    "hessian": lambda f: hessian(lambda x: f(x).sin().sum())(X),
    "vmap of jvp": lambda f: vmap(lambda x: jvp(f, (x,), (x + 1,))[1])(X),
    "jvp of grad": lambda f: jvp(grad(lambda x: f(x).sin().sum()), (X,), (X + 1,))[1],
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_watching_leaves_it_alone(layer, transform):
    expected = transform(layer)
    with amanda.apply(watch_gradient()):
        torch.testing.assert_close(transform(layer), expected)


def test_the_tangent_of_a_substitute_is_that_of_what_it_replaced(layer):
    tangent = X + 1
    tool = before("linear", lambda x, w: (2 * x, 3 * w), inputs=["input", "weight"])
    with amanda.apply(tool):
        value, change = jvp(layer, (X,), (tangent,))
    torch.testing.assert_close(value, 6 * X @ layer.weight.T + layer.bias)
    torch.testing.assert_close(change, tangent @ (3 * layer.weight).T)


def test_dual_numbers_pass(layer):
    with torch.autograd.forward_ad.dual_level(), amanda.apply(watch_gradient()):
        dual = torch.autograd.forward_ad.make_dual(X, X + 1)
        change = torch.autograd.forward_ad.unpack_dual(layer(dual)).tangent
    torch.testing.assert_close(change, (X + 1) @ layer.weight.T)


def test_what_torch_copies_to_make_a_dual_number_is_not_seen():
    column = torch.arange(8.0).reshape(4, 2)[:, 1]  # not laid out as the other one is
    zeros, tool = torch.zeros(4), Record()
    with amanda.apply(tool, Insert("insert_on_grad_inputs", None, nothing)):
        _, change = jvp(torch.sin, (zeros,), (column,))
    torch.testing.assert_close(change, column)  # times cos(0)
    assert tool.types == ["sin"]
