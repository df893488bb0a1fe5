"""What PyTorch computes of an operator for a transform or a tangent is none of the program's."""

import copy

import amanda
import pytest
import torch
from amanda.testing.probes import Insert, Record, after, before, nothing, recorded, same, under
from amanda_torch._internals import has_kernel
from amanda_torch.thread import KEY_NAME
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.functional import jacobian
from torch.func import grad, hessian, jacfwd, jvp, vmap
from torch.nn import functional

X = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)
LABELS = torch.tensor([0, 3, 1])


def dual(function):
    """Return the value and tangent of a function at X, by dual numbers."""
    with forward_ad.dual_level():
        return tuple(forward_ad.unpack_dual(function(forward_ad.make_dual(X, X + 2))))


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return torch.sin(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * ctx.saved_tensors[0].cos()


TANGENTS = {
    "dual": lambda: dual(torch.sin),
    "Function": lambda: dual(Sine.apply),
    "jvp": lambda: jvp(torch.sin, (X,), (X + 2,)),
    "jacfwd": lambda: jacfwd(torch.sin)(X[0]).diagonal(),
    "vmap of jvp": lambda: vmap(lambda x: jvp(torch.sin, (x,), (x + 2,)))(X),
    "hessian": lambda: hessian(lambda x: x.sin().sum())(X[0]).diagonal(),
    "vectorized": lambda: jacobian(torch.sin, X[0], vectorize=True, strategy="forward-mode"),
}


@pytest.mark.parametrize("run", TANGENTS.values(), ids=TANGENTS)
@pytest.mark.parametrize(
    "tool",
    [
        after(["cos", "mul", "neg"], lambda y: y * 5),
        before(["cos", "mul", "neg"], lambda *tensors: [5 * t for t in tensors]),
        Insert(
            "insert_on_grad_inputs", ["cos", "mul", "neg"], lambda *grads: [5 * g for g in grads]
        ),
    ],
    ids=["after", "before", "gradient"],
)
def test_the_formula_of_a_tangent_is_left_alone(tool, run):
    torch.testing.assert_close(under(tool, run), run(), rtol=0, atol=0)


def test_what_an_operator_that_nobody_wants_is_derived_from_is_not_seen():
    assert recorded(TANGENTS["jvp"], "cos", "mul") == []
    assert (
        recorded(lambda: jvp(torch.linalg.inv, (X[:, :3] + torch.eye(3),), (X[:, :3],)), "mm") == []
    )


def test_the_programs_own_operators_beside_it_are():
    def run():
        return jvp(lambda x: x.sin() * x.cos(), (X,), (X + 2,))

    assert recorded(run, "cos", "mul") == ["cos", "mul"]
    value, tangent = under(after("cos", lambda y: y * 2), run)
    torch.testing.assert_close(value, X.sin() * 2 * X.cos())
    # straight through: the derivative of cos, and of the product at the substitute
    torch.testing.assert_close(tangent, (X + 2) * (X.cos() * 2 * X.cos() - X.sin() * X.sin()))


@pytest.mark.parametrize("inserting", [nothing, same], ids=["looks", "substitutes"])
def test_what_torch_itself_does_with_a_tangent_of_a_tangent_is_not_seen(inserting):
    weight = torch.randn(2, 4)

    def run():
        def inner(tangent):
            return jvp(lambda x: functional.linear(x, weight).sin(), (X,), (tangent,))[1]

        return jvp(inner, (X,), (X + 2,))

    tool = Insert(("insert_before_op", "insert_after_op"), None, inserting)
    torch.testing.assert_close(under(tool, run), run())
    assert recorded(run, "as_strided") == []


@pytest.mark.parametrize("run", TANGENTS.values(), ids=TANGENTS)
def test_a_gradient_that_no_backward_pass_brings_is_not_watched(run):
    asking = Insert("insert_on_grad_inputs", "sin", nothing, with_inputs=[0], with_outputs=[0])
    torch.testing.assert_close(under(asking, run), run(), rtol=0, atol=0)


@pytest.mark.parametrize("training", [False, True])
def test_what_has_no_tangent_is_given_none(training):
    norm = torch.nn.BatchNorm1d(4).train(training)
    norm.running_var.fill_(4)
    expected = dual(copy.deepcopy(norm))
    tools = Insert(("insert_before_op", "insert_on_grad_inputs"), "batch_norm", same)
    torch.testing.assert_close(under(tools, lambda: dual(copy.deepcopy(norm))), expected)


def attention(x: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(x, x, x)


def test_a_composite_under_vmap_is_made_of_operators_on_one_sample():
    shapes = []
    tool = after("matmul", lambda y: shapes.append(tuple(y.shape)))
    samples = torch.randn(5, 2, 3, 4)
    torch.testing.assert_close(under(tool, lambda: vmap(attention)(samples)), attention(samples))
    assert shapes == [(2, 3, 3), (2, 3, 4)]  # each once, and not of all five samples again


def loss(x: Tensor) -> Tensor:
    return functional.cross_entropy(x, LABELS)


@pytest.mark.parametrize("inserting", [nothing, same], ids=["looks", "substitutes"])
@pytest.mark.parametrize("types", [["log_softmax"], ["_log_softmax"], ["nll_loss_nd"]])
def test_gradients_of_what_a_composite_is_made_of_under_grad(types, inserting):
    expected = (X.softmax(1) - functional.one_hot(LABELS, 4)) / 3
    tool = Insert("insert_on_grad_inputs", types, inserting)
    torch.testing.assert_close(under(tool, lambda: grad(loss)(X)), expected)


def test_what_is_substituted_in_a_composite_under_grad_is_differentiated_straight_through():
    result = under(before("log_softmax", lambda x: x * 3), lambda: grad(loss)(X))
    torch.testing.assert_close(result, ((3 * X).softmax(1) - functional.one_hot(LABELS, 4)) / 3)


def test_a_scope_that_is_opened_within_a_transform():
    tool = Record(["cos", "mul"])

    def function(x: Tensor) -> Tensor:
        with amanda.apply(tool):
            return x.sin() + x.cos()

    jvp(function, (X,), (X + 2,))
    assert tool.types == ["cos"]


def test_scopes_that_use_transforms_one_after_the_other_share_their_kernels(monkeypatch):
    made = []
    implement = torch.library.Library.impl

    def noting(library, name, *args, **options):
        made.append(name)
        return implement(library, name, *args, **options)

    def step():
        with amanda.apply(Record("sin")):
            vmap(torch.sin)(X)

    step()
    monkeypatch.setattr(torch.library.Library, "impl", noting)
    step()
    assert made == []


def test_what_nobody_wants_has_no_kernel_once_a_scope_used_no_transform():
    for transforms, has_one in ((True, True), (False, True), (False, False)):
        with amanda.apply(Record("sin")):
            vmap(torch.sin)(X) if transforms else torch.sin(X)
            assert has_kernel("aten::cosh", KEY_NAME) is has_one
