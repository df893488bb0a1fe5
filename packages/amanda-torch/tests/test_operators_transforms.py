"""Operators under the transforms of ``torch.func``, and under forward-mode gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import Observe, after, before, recorded, replace, under
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

V = torch.randn(3, 4)
W = torch.randn(4, 4)
T = torch.randn(3, 4)


def layer(x: Tensor) -> Tensor:
    return functional.linear(x, W).sigmoid()


def total(x: Tensor) -> Tensor:
    return layer(x).square().sum()


TRANSFORMED: dict[str, Callable[[], Any]] = {
    "vmap": lambda: vmap(layer)(V),
    "grad": lambda: grad(total)(V),
    "vmap of grad": lambda: vmap(grad(total))(V),
    "grad of vmap": lambda: grad(lambda x: vmap(total)(x).sum())(V),
    "grad of grad": lambda: grad(lambda x: grad(total)(x).square().sum())(V),
    "vjp": lambda: vjp(layer, V)[1](T),
    "jvp": lambda: jvp(layer, (V,), (T,)),
    "jvp of grad": lambda: jvp(grad(total), (V,), (T,)),
    "jacrev": lambda: jacrev(layer)(V[0]),
    "jacfwd": lambda: jacfwd(layer)(V[0]),
    "hessian": lambda: hessian(total)(V[0]),
    "jacobian": lambda: torch.autograd.functional.jacobian(layer, V[0], vectorize=True),
}
transformed = pytest.mark.parametrize("run", TRANSFORMED.values(), ids=TRANSFORMED)


def assert_same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@transformed
def test_observing_changes_nothing(run: Callable[[], Any]) -> None:
    expected = run()
    assert_same(under(Observe(), run), expected)
    assert_same(run(), expected)


@transformed
def test_operators_are_seen(run: Callable[[], Any]) -> None:
    types = recorded(run, "linear", "sigmoid")
    assert types
    assert types == ["linear", "sigmoid"] * (len(types) // 2)


# Substitutes


@pytest.mark.parametrize(
    ("tool", "changed"),
    [
        (
            before("linear", lambda w: w * 2, inputs=[1]),
            lambda x: functional.linear(x, 2 * W).sigmoid(),
        ),
        (
            before("sigmoid", lambda h: h * 3, differentiable=True),
            lambda x: (functional.linear(x, W) * 3).sigmoid(),
        ),
        (
            after("sigmoid", lambda y: y * 3, differentiable=True),
            lambda x: 3 * functional.linear(x, W).sigmoid(),
        ),
        (
            replace("sigmoid", lambda h: h.sin(), differentiable=True),
            lambda x: functional.linear(x, W).sin(),
        ),
    ],
    ids=["weight", "before", "after", "replace"],
)
@pytest.mark.parametrize("name", TRANSFORMED)
def test_what_is_substituted_is_transformed(
    tool: amanda.Tool, changed: Callable[[Tensor], Tensor], name: str, monkeypatch: Any
) -> None:
    result = under(tool, TRANSFORMED[name])
    monkeypatch.setitem(globals(), "layer", changed)
    torch.testing.assert_close(result, TRANSFORMED[name]())


SIGMOID = V.sigmoid()
SLOPE = SIGMOID * (1 - SIGMOID)
STRAIGHT: dict[str, tuple[amanda.Tool, Tensor, Tensor]] = {
    # a tool at sigmoid(V), what it then gives, and its derivative
    "before": (
        before("sigmoid", lambda x: x * 3),
        (3 * V).sigmoid(),
        (3 * V).sigmoid() * (1 - (3 * V).sigmoid()),
    ),
    "after": (after("sigmoid", lambda y: y * 3), 3 * SIGMOID, SLOPE),
    "replace": (replace("sigmoid", lambda x: x * 3), 3 * V, SLOPE),
}
straight = pytest.mark.parametrize(("tool", "value", "slope"), STRAIGHT.values(), ids=STRAIGHT)


@straight
def test_reverse_gradients_pass_straight_through(
    tool: amanda.Tool, value: Tensor, slope: Tensor
) -> None:
    def loss(x: Tensor) -> Tensor:
        return x.sigmoid().square().sum()

    torch.testing.assert_close(under(tool, lambda: grad(loss)(V)), 2 * value * slope)
    torch.testing.assert_close(under(tool, lambda: vmap(grad(loss))(V)), 2 * value * slope)


@straight
def test_forward_gradients_pass_straight_through(
    tool: amanda.Tool, value: Tensor, slope: Tensor
) -> None:
    result = under(tool, lambda: jvp(torch.sigmoid, (V,), (T,)))
    torch.testing.assert_close(result, (value, slope * T))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(V, T)
        for guard in (torch.enable_grad, torch.no_grad):
            with guard():
                unpacked = forward_ad.unpack_dual(under(tool, lambda d=dual: d.sigmoid()))
            torch.testing.assert_close(unpacked.primal, value)
            torch.testing.assert_close(unpacked.tangent, slope * T)


@straight
def test_a_jacobian_is_the_same_either_way(tool: amanda.Tool, value: Tensor, slope: Tensor) -> None:
    for jacobian in (jacrev, jacfwd):
        result = under(tool, lambda j=jacobian: j(lambda x: V.clone().sigmoid() * x)(V[0]))
        torch.testing.assert_close(result.sum(-1), value)


def test_in_place_under_transforms() -> None:
    def run(x: Tensor) -> Tensor:
        h = x * 1
        h.sigmoid_()
        return h.square().sum()

    for tool, value, slope in [
        (Observe(), SIGMOID, SLOPE),
        (after("sigmoid_", lambda y: y * 3), 3 * SIGMOID, SLOPE),
        (
            before("sigmoid_", lambda x: x * 3),
            (3 * V).sigmoid(),
            (3 * V).sigmoid() * (1 - (3 * V).sigmoid()),
        ),
    ]:
        torch.testing.assert_close(under(tool, lambda: vmap(run)(V)), value.square().sum(1))
        torch.testing.assert_close(under(tool, lambda: grad(run)(V)), 2 * value * slope)
        torch.testing.assert_close(under(tool, lambda: vmap(grad(run))(V)), 2 * value * slope)


def test_gradients_for_each_sample() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(model, parameters, (x,)).square().sum()

    def run() -> dict[str, Tensor]:
        return vmap(grad(loss), in_dims=(None, 0))(parameters, V)

    plain = run()
    assert_same(under(Observe(), run), plain)
    masks = {p.shape: (torch.randn_like(p) > 0).float() for p in parameters.values()}
    tool = before("linear", lambda w: w * masks[w.shape], inputs=[1])
    result = under(tool, run)
    masked = {name: p * masks[p.shape] if "weight" in name else p for name, p in parameters.items()}
    expected = vmap(grad(loss), in_dims=(None, 0))(masked, V)
    torch.testing.assert_close(result, expected)


def test_a_parameter_from_outside_of_a_transform() -> None:
    weight = nn.Parameter(W.clone())
    tool = before("linear", lambda w: w * 2, inputs=[1])
    result = under(tool, lambda: grad(lambda x: functional.linear(x, weight).sum())(V))
    torch.testing.assert_close(result, torch.ones(3, 4) @ (2 * W))


@pytest.mark.parametrize("transform", ["grad", "jvp"])
def test_a_substitute_for_statistics_that_a_transform_captures_is_updated(transform: str) -> None:
    """As outside of transforms, what training makes of the substitute is what the program has."""

    def updated(run: Callable[[Callable[[Tensor], Tensor]], Any]) -> Tensor:
        mean, var = torch.ones(4), torch.ones(4)
        tool = before("batch_norm", lambda m: m * 3, inputs=["running_mean"])
        norm = functional.batch_norm
        under(tool, lambda: run(lambda x: norm(x, mean, var, training=True).square().sum()))
        assert not mean.requires_grad
        assert forward_ad._current_level < 0
        return mean

    runs = {"grad": lambda f: grad(f)(V), "jvp": lambda f: jvp(f, (V,), (T,))}
    expected = 0.9 * 3 + 0.1 * V.mean(0)
    torch.testing.assert_close(updated(runs[transform]), expected)


def test_what_a_transform_cannot_take_is_not_blamed_on_a_tool_also_if_it_writes() -> None:
    norm = nn.BatchNorm1d(4)
    norm.num_batches_tracked = None
    tool = before("batch_norm", lambda m: m * 3, inputs=["running_mean"])
    with pytest.raises(RuntimeError, match="were not batched") as caught:
        under(tool, lambda: vmap(norm)(V[None]))
    assert not isinstance(caught.value, amanda.AmandaError)


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_random_numbers_are_the_same(randomness: str) -> None:
    def run() -> Tensor:
        torch.manual_seed(3)
        result: Tensor = vmap(functional.dropout, randomness=randomness)(torch.ones(4, 6))
        return result

    assert_same(under(Observe(), run), run())


def test_a_routine_sees_one_sample_at_a_time_as_the_program_does() -> None:
    shapes = []
    under(before("relu", lambda x: shapes.append(x.shape)), lambda: vmap(torch.relu)(V))
    assert shapes == [(4,)]
