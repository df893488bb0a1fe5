"""What a context shows of an operator's tensors and attributes, and the state it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amanda
import numpy as np
import pytest
import torch
from amanda.testing.probes import Describe, Record, Watch, after, before, under
from leaves import leaf
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.randn(2, 3, 8, 8)
W = torch.randn(4, 3, 3, 3)
V = torch.randn(4, 4)
INDEX = torch.tensor([0, 1])


def analyzed(run: Callable[[], object], op: str, look: Callable[[amanda.OpContext], None]) -> None:
    """Have an analysis look at the operators of a type in ``run``, at least at one."""
    count = 0

    def analyze(ctx: amanda.OpContext) -> None:
        nonlocal count
        count += 1
        look(ctx)

    tool = amanda.Tool()
    tool.add_inst_for_op(analyze, ops=[op])
    under(tool, run)
    assert count


# Names and attributes

CASES: dict[str, tuple[Callable[[], object], str, list[str], dict[str, Any]]] = {
    "defaults are filled in": (
        lambda: functional.conv2d(X, W),
        "conv2d",
        ["input", "weight"],
        {
            "bias": None,
            "stride": [1, 1],
            "padding": [0, 0],
            "dilation": [1, 1],
            "groups": 1,
        },
    ),
    "one number stands for all dimensions": (
        lambda: functional.conv2d(X, W, stride=2, padding=1),
        "conv2d",
        ["input", "weight"],
        {
            "bias": None,
            "stride": [2, 2],
            "padding": [1, 1],
            "dilation": [1, 1],
            "groups": 1,
        },
    ),
    "a string": (
        lambda: functional.conv2d(X, W, torch.zeros(4), padding="same"),
        "conv2d",
        ["input", "weight", "bias"],
        {"stride": [1, 1], "padding": "same", "dilation": [1, 1], "groups": 1},
    ),
    "an absent tensor between present ones": (
        lambda: functional.layer_norm(V, (4,), bias=V[0]),
        "layer_norm",
        ["input", "bias"],
        {"normalized_shape": [4], "weight": None, "eps": 1e-5, "cudnn_enable": True},
    ),
    "arguments by keyword, in another order": (
        lambda: torch.conv2d(weight=W, input=X, groups=1),
        "conv2d",
        ["input", "weight"],
        {
            "bias": None,
            "stride": [1, 1],
            "padding": [0, 0],
            "dilation": [1, 1],
            "groups": 1,
        },
    ),
    "a dtype": (
        lambda: V.sum(dim=[0], dtype=torch.float64),
        "sum",
        ["self"],
        {"dim": [0], "keepdim": False, "dtype": torch.float64},
    ),
    "a number in place of a tensor": (
        lambda: torch.clamp(V, min=0.5),
        "clamp",
        ["self"],
        {"min": 0.5, "max": None},
    ),
    "a tensor in place of a number": (
        lambda: torch.clamp(V, max=V),
        "clamp",
        ["self", "max"],
        {"min": None},
    ),
    "a scalar": (lambda: torch.add(V, V, alpha=2), "add", ["self", "other"], {"alpha": 2}),
    "a list of tensors": (
        lambda: torch.cat([V, V, V], 1),
        "cat",
        ["tensors[0]", "tensors[1]", "tensors[2]"],
        {"dim": 1},
    ),
    "a list of tensors with gaps": (
        lambda: X[:, INDEX],
        "index",
        ["self", "indices[1]"],
        {},
    ),
    "two lists of tensors": (
        lambda: torch._foreach_add([V, V], [V, V]),
        "_foreach_add",
        ["self[0]", "self[1]", "other[0]", "other[1]"],
        {"alpha": 1},
    ),
    "no tensor at all": (
        lambda: torch.full((2,), 3.0),
        "full",
        [],
        {
            "size": [2],
            "fill_value": 3.0,
            "dtype": None,
            "layout": None,
            "device": torch.device("cpu"),
            "pin_memory": False,
            "names": None,
        },
    ),
    "out= is a destination, no input": (
        lambda: torch.add(V, V, out=torch.empty(4, 4)),
        "add",
        ["self", "other"],
        {"alpha": 1},
    ),
    "dropout": (
        lambda: functional.dropout(V, 0.25, training=False),
        "dropout",
        ["input"],
        {"p": 0.25, "train": False},
    ),
    "attention": (
        lambda: functional.scaled_dot_product_attention(X, X, X, is_causal=True),
        "scaled_dot_product_attention",
        ["query", "key", "value"],
        {
            "attn_mask": None,
            "dropout_p": 0.0,
            "is_causal": True,
            "scale": None,
            "enable_gqa": False,
        },
    ),
}


@pytest.mark.parametrize(("run", "op", "names", "attrs"), CASES.values(), ids=CASES)
def test_names_and_attributes(
    run: Callable[[], object], op: str, names: list[str], attrs: dict[str, Any]
) -> None:
    tool = Describe(op)
    under(tool, run)
    assert tool.names[op] == names
    shown = tool.attrs[op]
    if op == "full":  # which has an overload with names and one without
        shown = {"names": None, **shown}
    assert shown == attrs


def test_inputs_are_the_programs_own_tensors() -> None:
    def look(ctx: amanda.OpContext) -> None:
        assert [a is b for a, b in zip(ctx.inputs, (X, W), strict=True)] == [True, True]
        assert ctx.input("weight") is W
        assert ctx.input("bias") is None
        with pytest.raises(amanda.ValueUnavailableError, match=r"no input 'stride'.*weight"):
            ctx.input("stride")

    analyzed(lambda: functional.conv2d(X, W), "conv2d", look)


def test_an_input_that_is_a_list() -> None:
    def look(ctx: amanda.OpContext) -> None:
        assert [a is V for a in ctx.input("tensors")] == [True, True]

    analyzed(lambda: torch.stack([V, V]), "stack", look)


BIAS, WEIGHT = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(4, 3))


@pytest.mark.parametrize(
    ("run", "index"),
    [
        (lambda: torch.addmm(BIAS, V, WEIGHT), 2),  # as in GPT-2
        (lambda: torch.addmm(BIAS, V, WEIGHT * 2), None),
        (lambda: nn.functional.linear(V, WEIGHT.T, BIAS), 1),
        (lambda: nn.functional.linear(V, WEIGHT.T * 2, BIAS), None),
        (lambda: V[:, :3] + BIAS, 1),
    ],
)
def test_a_bias_is_not_taken_for_the_weight(run: Callable[[], Tensor], index: int | None) -> None:
    found: list[int | None] = []
    types = ["addmm", "linear", "add"]
    under(Watch(lambda ctx: found.append(ctx.weight_index), types), run)
    assert found == [index]


def test_all_of_a_recurrent_networks_tensors() -> None:
    names = []
    layer = nn.LSTM(4, 3)
    analyzed(lambda: layer(V), "lstm", lambda ctx: names.extend(ctx.input_names))
    assert names == ["input", "hx[0]", "hx[1]", *(f"params[{i}]" for i in range(4))]


# Values


@pytest.mark.parametrize(
    "tensor",
    [
        V,
        leaf(4, 4),
        V.t(),
        V[::2, 1],
        torch.arange(4),
        torch.tensor([True, False]),
        V.to(torch.float16),
        torch.view_as_complex(torch.randn(4, 2)).conj(),
        torch.tensor(2.5),
    ],
    ids=lambda t: f"{str(t.dtype).removeprefix('torch.')}-{t.dim()}d",
)
def test_the_value_of_an_input(tensor: Tensor) -> None:
    def look(ctx: amanda.OpContext) -> None:
        value = ctx.value(0)
        assert isinstance(value, np.ndarray)
        np.testing.assert_array_equal(value, tensor.detach().resolve_conj().numpy())

    analyzed(lambda: tensor * 1, "mul", look)


def test_a_value_stays_as_it_was() -> None:
    values = []
    weight = torch.ones(2)
    analyzed(lambda: weight * 1, "mul", lambda ctx: values.append(ctx.value(0)))
    weight.zero_()
    np.testing.assert_array_equal(values[0], [1, 1])


def test_a_bfloat16_is_shown_as_what_numpy_has() -> None:
    def look(ctx: amanda.OpContext) -> None:
        assert ctx.value(0).dtype == np.float32
        np.testing.assert_array_equal(ctx.value(0), [1.5, -2.0])

    tensor = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    analyzed(lambda: tensor * 1, "mul", look)


@pytest.mark.parametrize(
    "tensor",
    [torch.empty(2, device="meta"), V.relu().to_sparse()],
    ids=["meta", "sparse"],
)
def test_a_value_that_numpy_cannot_hold_is_unavailable(tensor: Tensor) -> None:
    def look(ctx: amanda.OpContext) -> None:
        with pytest.raises(amanda.ValueUnavailableError):
            ctx.value(0)

    analyzed(lambda: tensor * 1, "mul", look)


# State and the array namespace


def test_a_variable_takes_effect_when_it_is_assigned() -> None:
    variables: list[Any] = []
    analyses = 0

    def analyze(ctx: amanda.OpContext) -> None:
        nonlocal analyses
        analyses += 1
        mask = ctx.variable("mask", np.ones((4, 4), np.float32))
        variables.append(mask)
        ctx.insert_before_op(lambda w: w * mask, inputs=[1])

    tool = amanda.Tool()
    tool.add_inst_for_op(analyze, ops=["linear"])
    weight = leaf(4, 4)
    half = (torch.randn(4, 4) > 0).float()
    values = [half, np.zeros((4, 4)), 2]
    results = []
    with amanda.apply(tool):
        for value in [None, *values]:
            if value is not None:
                variables[0].assign(value)
            results.append(functional.linear(V, weight))
    assert analyses == 1
    for result, mask in zip(results, [1, half, 0, 2], strict=True):
        torch.testing.assert_close(result, V @ (weight * mask).t())


def test_a_variable_is_assigned_within_a_routine_too() -> None:
    counts: list[Any] = []

    def analyze(ctx: amanda.OpContext) -> None:
        count = ctx.variable("count", 0)
        counts.append(count)
        ctx.insert_before_op(lambda *tensors: bool(count.assign(count + 1)) and None)

    tool = amanda.Tool()
    tool.add_inst_for_op(analyze, ops=["relu"])
    layer = nn.ReLU()
    with amanda.apply(tool):
        for _ in range(3):
            layer(V)
    assert [int(count) for count in counts] == [3]


def test_a_scope_within_a_routine_leaves_the_rest_of_the_routine_unseen() -> None:
    inner = Record("mul")

    def routine(x: Tensor) -> Tensor:
        with amanda.disabled():
            y = x * 2
        with amanda.apply(inner):
            y = y * 3
        return y * 4

    tool = Record(["mul", "relu"])
    assert torch.equal(under([tool, before("relu", routine)], lambda: V.relu()), (24 * V).relu())
    assert tool.types == ["relu"]
    assert inner.types == ["mul"]
    assert under(tool, lambda: V * 2) is not None
    assert tool.types == ["relu", "mul"]


def test_a_variable_of_another_shape_is_an_error() -> None:
    def look(ctx: amanda.OpContext) -> None:
        with pytest.raises(RuntimeError, match="size"):
            ctx.variable("scale", np.ones(3)).assign(np.ones(2))

    analyzed(lambda: V.relu(), "relu", look)


def test_a_portable_routine_computes_with_the_array_namespace() -> None:
    def analyze(ctx: amanda.OpContext) -> None:
        xp = ctx.xp

        def routine(w: Any) -> Any:
            return xp.where(xp.abs(w) > xp.mean(xp.abs(w)), w, xp.zeros_like(w))

        ctx.insert_before_op(routine, inputs=[1])

    tool = amanda.Tool()
    tool.add_inst_for_op(analyze, ops=["linear"])
    pruned = torch.where(V.abs() > V.abs().mean(), V, 0)
    assert torch.equal(under(tool, lambda: functional.linear(V, V)), V @ pruned.t())


def test_the_context_is_kept_between_analyses_of_one_operator() -> None:
    sizes = []

    def analyze(ctx: amanda.OpContext) -> None:
        sizes.append(len(ctx))
        ctx["seen"] = True

    tool = amanda.Tool()
    tool.add_inst_for_op(analyze, ops=["relu"])
    layer = nn.ReLU()
    with amanda.apply(tool):
        layer(V)
        tool.invalidate()
        layer(V)
    assert sizes == [0, 1]


def test_a_routine_gets_its_own_keyword_arguments() -> None:
    assert torch.equal(
        under(before("relu", lambda t, by: t * by, by=3), lambda: V.relu()), (V * 3).relu()
    )
    assert torch.equal(
        under(after("relu", lambda t, by, plus: t * by + plus, by=3, plus=1), lambda: V.relu()),
        V.relu() * 3 + 1,
    )
