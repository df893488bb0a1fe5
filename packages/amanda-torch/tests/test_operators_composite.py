"""Composite operators: one to a tool that wants it, and what is inside to one that does not."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import amanda
import pytest
import torch
from amanda.testing.probes import Record, after, before, recorded, under
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

V = torch.randn(4, 4)
Q = torch.randn(1, 2, 4, 8)
SEQUENCE = torch.randn(3, 2, 4)
LABELS = torch.arange(4)


class Attention(nn.Module):
    def forward(self, mask: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(Q, Q, Q, mask)


class Linear(nn.Module):
    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.linear(x, weight)


class Composite(NamedTuple):
    """What makes a module, its arguments, the operator that it is, and operators inside of that."""

    make: Callable[[], nn.Module]
    args: tuple[Tensor, ...]
    outer: str
    inner: list[str]


COMPOSITES = {
    "attention": Composite(
        Attention,
        (torch.zeros(4, 4).requires_grad_(),),
        "scaled_dot_product_attention",
        ["_scaled_dot_product_attention_math"],
    ),
    "lstm": Composite(
        lambda: nn.LSTM(4, 3).to(torch.float64),
        (SEQUENCE.to(torch.float64),),
        "lstm",
        ["linear", "sigmoid_", "tanh"],
    ),
    "gru": Composite(lambda: nn.GRU(4, 3), (SEQUENCE,), "gru", ["linear", "sigmoid_", "tanh_"]),
    "rnn": Composite(lambda: nn.RNN(4, 3), (SEQUENCE,), "rnn_tanh", ["linear", "tanh"]),
    "layer_norm": Composite(lambda: nn.LayerNorm(4), (V,), "layer_norm", ["native_layer_norm"]),
    "batch_norm": Composite(
        lambda: nn.BatchNorm1d(4), (V,), "batch_norm", ["_batch_norm_impl_index"]
    ),
    "cross_entropy": Composite(
        nn.CrossEntropyLoss, (V, LABELS), "cross_entropy_loss", ["log_softmax", "nll_loss_nd"]
    ),
    "conv2d": Composite(lambda: nn.Conv2d(2, 3, 3), (Q,), "conv2d", ["convolution"]),
    "linear": Composite(Linear, (SEQUENCE, V), "linear", ["matmul", "t", "mm", "addmm"]),
    "multihead": Composite(
        lambda: nn.MultiheadAttention(4, 2),
        (SEQUENCE, SEQUENCE, SEQUENCE),
        "softmax",
        ["_softmax"],
    ),
}


@pytest.fixture(params=COMPOSITES)
def composite(request: pytest.FixtureRequest) -> Composite:
    """Each of them."""
    found: Composite = COMPOSITES[request.param]
    return found


@pytest.fixture
def run(composite: Composite) -> Callable[[], object]:
    """Runs a new module."""
    module = composite.make()
    return lambda: module(*composite.args)


def test_it_is_one_operator_when_it_is_wanted(
    composite: Composite, run: Callable[[], object]
) -> None:
    assert recorded(run, composite.outer, *composite.inner).count(composite.outer) == 1
    assert [
        t for t in recorded(run, composite.outer, *composite.inner) if t in composite.inner
    ] == []


def test_all_operators_are_the_outermost_ones(
    composite: Composite, run: Callable[[], object]
) -> None:
    types = recorded(run)
    assert composite.outer in types
    assert "_softmax" not in types


def test_what_is_inside_is_seen_when_only_that_is_wanted(
    composite: Composite, run: Callable[[], object]
) -> None:
    found = recorded(run, *composite.inner)
    assert found
    assert set(found) <= set(composite.inner)


@pytest.mark.parametrize("nested", [False, True], ids=["one scope", "nested scopes"])
def test_two_tools_see_it_each_as_it_wants(
    composite: Composite, run: Callable[[], object], nested: bool
) -> None:
    alone = Record([*composite.inner])
    under(alone, run)
    whole, parts = Record(composite.outer), Record([*composite.inner])
    with amanda.apply(*([whole] if nested else [whole, parts])):
        if nested:
            under(parts, run)
        else:
            run()
    assert whole.types == [composite.outer]
    assert parts.ran == alone.ran


def test_a_tool_that_wants_all_operators_does_not_hide_what_is_inside(
    composite: Composite, run: Callable[[], object]
) -> None:
    alone, parts = Record([*composite.inner]), Record([*composite.inner])
    under(alone, run)
    under([Record(), parts], run)
    assert parts.ran == alone.ran


def test_results_are_the_same_whoever_looks(composite: Composite) -> None:
    module = composite.make().eval()
    plain = module(*composite.args)
    for tools in (
        [Record(composite.outer)],
        [Record([*composite.inner])],
        [Record(composite.outer), Record([*composite.inner])],
    ):
        result = under(tools, lambda: module(*composite.args))
        torch.testing.assert_close(result, plain, rtol=0, atol=0)


def test_ids_inside_do_not_depend_on_the_tools_order() -> None:
    module = nn.GRU(4, 3)
    tools = [Record("gru"), Record("linear"), Record(["sigmoid_", "tanh_"]), Record()]
    expected = [_ids(tool, module) for tool in tools]

    @settings(max_examples=10, deadline=None)
    @given(st.permutations(range(4)))
    def check(order: list[int]) -> None:
        fresh = [Record("gru"), Record("linear"), Record(["sigmoid_", "tanh_"]), Record()]
        under([fresh[i] for i in order], lambda: module(SEQUENCE))
        assert [tool.ran for tool in fresh] == expected

    check()


def _ids(tool: Record, module: nn.Module) -> list[str]:
    under(tool, lambda: module(SEQUENCE))
    return tool.ran


# Fused kernels, which call operators although autograd knows nothing of them


FUSED: dict[str, tuple[Callable[[], nn.Module], int, list[str]]] = {
    "_native_multi_head_attention": (
        lambda: nn.MultiheadAttention(4, 2, batch_first=True),
        3,
        ["bmm", "addmm"],
    ),
    "_transformer_encoder_layer_fwd": (
        lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
        1,
        ["native_layer_norm", "addmm"],
    ),
}


@pytest.mark.parametrize("op", FUSED)
def test_a_fused_kernel(op: str) -> None:
    make, arguments, inner = FUSED[op]
    module = make().eval()

    @torch.no_grad()
    def run() -> None:
        module(*[SEQUENCE] * arguments)

    assert recorded(run) == [op]
    alone, whole, parts = Record([*inner]), Record(op), Record([*inner])
    under(alone, run)
    under([whole, parts], run)
    assert set(alone.types) == set(inner)
    assert whole.types == [op]
    assert parts.ran == alone.ran


# Substituting, outside and inside


def test_what_is_substituted_inside_shows_outside() -> None:
    module, labels = nn.CrossEntropyLoss(), LABELS
    seen_outside = []
    outside = after("cross_entropy_loss", lambda loss: seen_outside.append(loss.clone()))
    inside = after("log_softmax", lambda t: t * 2)
    result = under([outside, inside], lambda: module(V, labels))
    expected = functional.nll_loss(V.log_softmax(-1) * 2, labels)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(seen_outside, [expected])


def test_what_is_substituted_outside_is_seen_inside() -> None:
    given = []
    tools = [
        before("linear", lambda w: w * 2, inputs=[1]),
        before("t", lambda w: given.append(w.clone())),
    ]
    result = under(tools, lambda: functional.linear(V, V))
    torch.testing.assert_close(result, V @ (2 * V).t())
    torch.testing.assert_close(given, [2 * V])


def test_gradients_pass_through_both() -> None:
    x, w = torch.randn(2, 4).requires_grad_(), torch.randn(3, 4).requires_grad_()
    tools = [
        before("linear", lambda w: w * 2, inputs=[1]),
        after("addmm", lambda y: y * 3),
        after("mm", lambda y: y * 3),
    ]
    result = under(tools, lambda: functional.linear(x, w))
    result.sum().backward()
    torch.testing.assert_close(result, 3 * (x @ (2 * w).t()))
    torch.testing.assert_close(x.grad, torch.ones(2, 3) @ (2 * w))
    torch.testing.assert_close(w.grad, torch.ones(2, 3).t() @ x)


def test_a_replaced_operator_has_nothing_inside() -> None:
    parts = Record(["t", "addmm", "mm"])
    tools = [parts, _replacing_linear()]
    with torch.no_grad():
        assert torch.equal(under(tools, lambda: functional.linear(V, V)), V)
    assert parts.types == []


def _replacing_linear() -> amanda.Tool:
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: ctx.replace_op(lambda x, w: x), ops=["linear"])
    return tool


def test_a_thread_that_looks_inside_takes_nothing_from_one_that_does_not() -> None:
    whole, parts = Record(["layer_norm"]), Record(["native_layer_norm"])
    module = nn.LayerNorm(4)

    def look_inside() -> None:
        under(parts, lambda: module(V))

    with amanda.apply(whole):
        module(V)
        thread = threading.Thread(target=look_inside)
        thread.start()
        thread.join()
        module(V)
    assert (whole.types, parts.types) == (["layer_norm"] * 2, ["native_layer_norm"])
