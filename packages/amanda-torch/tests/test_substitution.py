"""S2: what a routine returns stands for what it was given, or is an error."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import Insert, after, before, replace, under
from hypothesis import given, settings
from hypothesis import strategies as st
from leaves import leaf
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

V = torch.randn(4, 4)
COUNT = 5
TENSORS = [torch.full((2,), float(i)) for i in range(COUNT)]

# Positions in any order, also counted from the end, each tensor at most once.
positions = st.lists(st.integers(-COUNT, COUNT - 1), unique_by=lambda i: i % COUNT, max_size=COUNT)
what_is_returned = st.lists(st.booleans(), min_size=COUNT, max_size=COUNT)


def expected(chosen: list[int], replaced: list[bool]) -> list[Tensor]:
    """The tensors, those that are chosen and replaced plus 10 times the turn they came in."""
    result = list(TENSORS)
    for turn, index in enumerate(chosen):
        if replaced[turn]:
            result[index] = TENSORS[index] + 10 * (turn + 1)
    return result


def plus_ten_times_turn(replaced: list[bool], as_type: type) -> Callable[..., Any]:
    def routine(*tensors: Tensor) -> Any:
        return as_type(
            t + 10 * (turn + 1) if replaced[turn] else None for turn, t in enumerate(tensors)
        )

    return routine


@settings(max_examples=30, deadline=None)
@given(positions, what_is_returned, st.sampled_from([tuple, list]))
def test_any_choice_of_many_inputs(chosen: list[int], replaced: list[bool], as_type: type) -> None:
    tool = before("cat", plus_ten_times_turn(replaced, as_type), inputs=chosen)
    result = under(tool, lambda: torch.cat(TENSORS))
    assert torch.equal(result, torch.cat(expected(chosen, replaced)))


@settings(max_examples=30, deadline=None)
@given(positions, what_is_returned, st.sampled_from([tuple, list]))
def test_any_choice_of_many_outputs(chosen: list[int], replaced: list[bool], as_type: type) -> None:
    tool = after("unbind", plus_ten_times_turn(replaced, as_type), outputs=chosen)
    result = under(tool, lambda: torch.stack(TENSORS).unbind())
    assert isinstance(result, tuple)
    assert all(map(torch.equal, result, expected(chosen, replaced)))


@settings(max_examples=30, deadline=None)
@given(positions, what_is_returned)
def test_any_choice_of_what_is_written_to(chosen: list[int], replaced: list[bool]) -> None:
    tensors = [t - 1 for t in TENSORS]
    tool = after("_foreach_add_", plus_ten_times_turn(replaced, tuple), outputs=chosen)
    under(tool, lambda: torch._foreach_add_(tensors, 1.0))
    assert all(map(torch.equal, tensors, expected(chosen, replaced)))


@settings(max_examples=30, deadline=None)
@given(positions, what_is_returned)
def test_gradients_pass_through_any_choice(chosen: list[int], replaced: list[bool]) -> None:
    leaves = [t.clone().requires_grad_() for t in TENSORS]
    weights = torch.arange(2.0 * COUNT)
    tools = [before("cat", plus_ten_times_turn(replaced, tuple), inputs=chosen)]
    result = under(tools, lambda: torch.cat(leaves))
    (result * weights).sum().backward()
    assert torch.equal(result.detach(), torch.cat(expected(chosen, replaced)))
    assert torch.equal(torch.cat([t.grad for t in leaves]), weights)


@settings(deadline=None)
@given(st.integers(0, 6).filter(lambda n: n != COUNT))
def test_the_wrong_number_is_an_error(count: int) -> None:
    tool = before("cat", lambda *tensors: tensors[:1] * count)
    with pytest.raises(amanda.RoutineError, match=f"expected {COUNT} tensors.*got {count}"):
        under(tool, lambda: torch.cat(TENSORS))


# Operators with several tensors, each replaced alone


@pytest.mark.parametrize(
    ("op", "run"),
    [
        ("topk", lambda: V.topk(2)),
        ("max", lambda: V.max(dim=1)),
        ("split", lambda: V.split(2)),
        ("unbind", lambda: V.unbind()),
        ("linalg_svd", lambda: torch.linalg.svd(V)),
    ],
)
def test_outputs_keep_the_type_in_which_they_are_returned(op: str, run: Callable[[], Any]) -> None:
    plain = run()
    result = under(after(op, lambda first, *rest: (first + 1, *(None for _ in rest))), run)
    assert type(result) is type(plain)
    torch.testing.assert_close(result[0], plain[0] + 1)
    torch.testing.assert_close(list(result[1:]), list(plain[1:]))


def test_the_states_of_a_recurrent_network() -> None:
    layer, x = nn.LSTM(4, 5), torch.randn(3, 2, 4)
    output, (h, c) = layer(x)
    tool = after("lstm", lambda o, h, c: (o * 2, None, c + 1))
    new_output, (new_h, new_c) = under(tool, lambda: layer(x))
    torch.testing.assert_close((new_output, new_h, new_c), (output * 2, h, c + 1))


def test_one_of_a_networks_weights() -> None:
    layer, x = nn.GRU(4, 5), torch.randn(3, 2, 4)
    other = nn.GRU(4, 5)
    other.load_state_dict(layer.state_dict())
    other.weight_hh_l0.data.mul_(2)
    tool = amanda.Tool()
    tool.add_inst_for_op(
        lambda ctx: ctx.insert_before_op(
            lambda w: w * 2, inputs=[list(ctx.input_names).index("params[1]")]
        ),
        ops=["gru"],
    )
    torch.testing.assert_close(under(tool, lambda: layer(x)), other(x))


def test_a_tensor_among_indices() -> None:
    index = torch.tensor([0, 1])
    result = under(before("index", lambda i: 1 - i, inputs=[1]), lambda: V[:, index])
    assert torch.equal(result, V[:, [1, 0]])


def test_an_optional_tensor() -> None:
    bias = torch.randn(4)
    tool = before(
        "linear", lambda x, w, b=None: (x, w, None if b is None else b * 2)[: 2 + (b is not None)]
    )
    torch.testing.assert_close(
        under(tool, lambda: functional.linear(V, V, bias)), V @ V.t() + 2 * bias
    )
    torch.testing.assert_close(under(tool, lambda: functional.linear(V, V)), V @ V.t())


def test_an_argument_by_keyword() -> None:
    x, w = torch.randn(1, 1, 4, 4), torch.randn(1, 1, 2, 2)
    tool = before("conv2d", lambda w: w * 2, inputs=[1])
    result = under(tool, lambda: torch.ops.aten.conv2d(weight=w, input=x))
    torch.testing.assert_close(result, functional.conv2d(x, w * 2))


def test_a_number_among_tensors_is_left_alone() -> None:
    result = under(before("add", lambda x: x * 2), lambda: torch.add(V, 3, alpha=2))
    torch.testing.assert_close(result, 2 * V + 6)


def test_other_sizes_where_the_operator_takes_them() -> None:
    result = under(before("matmul", lambda x: x[:2], inputs=[0]), lambda: V @ V)
    torch.testing.assert_close(result, V[:2] @ V)
    assert under(after("relu", lambda y: y[0]), lambda: V.relu()).shape == (4,)


# Replacements


def test_a_replacement_of_one_with_many_outputs() -> None:
    result = under(replace("split", lambda x: [x[:3], x[3:]]), lambda: V.split(2))
    assert isinstance(result, tuple)
    assert [t.shape[0] for t in result] == [3, 1]
    values, indices = under(
        replace("topk", lambda x: (x[:, :2], x[:, :2].long())), lambda: V.topk(2)
    )
    assert torch.equal(values, V[:, :2])
    assert indices.dtype == torch.long


@pytest.mark.parametrize("recorded", [True, False])
def test_a_replacement_that_returns_none_leaves_the_operator_be(recorded: bool) -> None:
    x = leaf(4, 4) if recorded else V
    assert torch.equal(under(replace("relu", lambda t: None), lambda: x.relu()), x.relu())
    plain = x.topk(2)
    result = under(replace("topk", lambda t: (None, plain.indices * 0)), lambda: x.topk(2))
    assert torch.equal(result.values, plain.values)
    assert torch.equal(result.indices, plain.indices * 0)


def test_a_replacement_of_what_does_not_return_tensors_alone() -> None:
    op = torch.ops.aten._batch_norm_impl_index
    x = torch.randn(3, 4)
    args = (x, None, None, None, None, True, 0.1, 1e-5, False)
    plain = op(*args)
    tool = replace("_batch_norm_impl_index", lambda x: (x, None, None, None))
    result = under(tool, lambda: op(*args))
    assert torch.equal(result[0], x)
    torch.testing.assert_close(result[1:], plain[1:])


def test_a_replaced_operator_is_not_run_without_need() -> None:
    state = torch.get_rng_state()
    result = under(replace("dropout", lambda x: x * 0), lambda: functional.dropout(V, 0.5))
    assert torch.equal(result, torch.zeros(4, 4))
    assert torch.equal(torch.get_rng_state(), state)


# Errors

WRONG = {
    "dtype": (lambda *ts: ts[0].double(), "returned dtype torch.float64 for torch.float32"),
    "device": (lambda *ts: ts[0].to("meta"), "returned device meta for cpu"),
    "number": (lambda *ts: 3.0, "returned float, not a tensor"),
    "list": (lambda *ts: [[ts[0]]], "returned list, not a tensor"),
    "two": (lambda *ts: (ts[0], ts[0]), "expected 1 tensor to be returned, got 2"),
    "no": (lambda *ts: (), "expected 1 tensor to be returned, got 0"),
    "dict": (lambda *ts: {"y": ts[0]}, "returned dict, not a tensor"),
}
POINTS = ["insert_before_op", "insert_after_op", "replace_op"]


@pytest.mark.parametrize(
    ("insertion", "recorded", "wrong"),
    [
        (insertion, recorded, wrong)
        for insertion in POINTS
        for recorded in (True, False)
        for wrong in WRONG
        # without gradients an original is not run, and what it would return is not known
        if recorded or insertion != "replace_op" or wrong not in ("dtype", "device")
    ],
)
def test_what_cannot_stand_for_a_tensor(insertion: str, recorded: bool, wrong: str) -> None:
    routine, match = WRONG[wrong]
    x = leaf(4, 4) if recorded else V
    with pytest.raises(amanda.RoutineError, match=match) as caught:
        under(Insert(insertion, "relu", routine), lambda: x.relu())
    assert caught.value.tool == "Insert"
    assert caught.value.point == insertion.removeprefix("insert_")
    assert caught.value.operator_id.startswith("relu")


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("insertion", POINTS)
def test_a_differentiable_routine_returns_tensors_too(insertion: str, recorded: bool) -> None:
    x = leaf(4) if recorded else V
    with pytest.raises(amanda.RoutineError, match="returned str, not a tensor"):
        under(Insert(insertion, "relu", lambda t: "y", differentiable=True), lambda: x.relu())


@pytest.mark.parametrize("insertion", POINTS)
def test_a_shape_through_which_no_gradient_passes(insertion: str) -> None:
    with pytest.raises(amanda.RoutineError, match=r"shape \(2, 4\) for \(4, 4\).*differentiable"):
        under(Insert(insertion, "relu", lambda x: x[:2]), lambda: leaf(4, 4).relu())


def test_a_substitute_that_the_operator_cannot_take() -> None:
    tool = before("matmul", lambda x: x[:, :3], inputs=[0])
    with pytest.raises(amanda.RoutineError, match=r"cannot take what was substituted.*4x3"):
        under(tool, lambda: V @ V)


def test_a_program_error_is_not_blamed_on_a_tool() -> None:
    tool = before("matmul", lambda x: x + 1, inputs=[0])
    with pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
        under(tool, lambda: V[:, :3] @ V)
    assert not isinstance(caught.value, amanda.AmandaError)


def test_an_operator_that_gives_fewer_outputs_than_are_selected() -> None:
    layer = _Splitting()
    with amanda.apply(after("split", lambda t: None, outputs=[2])):
        layer(2)
        with pytest.raises(amanda.RoutineError, match=r"selects tensors \[2\].*has 2"):
            layer(3)


class _Splitting(nn.Module):
    def forward(self, size: int) -> tuple[Tensor, ...]:
        return torch.zeros(6).split(size)


def test_the_program_goes_on_after_an_error() -> None:
    x = leaf(4, 4)
    with amanda.apply(after("relu", lambda y: (y, y))), pytest.raises(amanda.RoutineError):
        x.relu()
    x.relu().sum().backward()
    assert torch.equal(x.grad, (x > 0).float())


# Substitutes that have a graph of their own


def test_a_substitute_that_requires_grad_is_a_constant() -> None:
    scale, x = leaf(4), leaf(4)
    for tool in (before("sin", lambda t: t * scale), before("sin", lambda t: scale)):
        x.grad = None
        under(tool, lambda: x.sin()).sum().backward()
        assert x.grad is not None
        assert scale.grad is None


def test_a_parameter_of_a_tool_may_stand_for_an_input_that_has_no_gradient() -> None:
    other = nn.Parameter(torch.randn(4, 4))
    result = under(before("matmul", lambda x: other, inputs=[0]), lambda: V @ V)
    assert not result.requires_grad
    assert torch.equal(result, other.detach() @ V)


def test_with_differentiable_it_has_its_gradient() -> None:
    other = nn.Parameter(torch.randn(4, 4))
    tool = before("matmul", lambda x: other, inputs=[0], differentiable=True)
    under(tool, lambda: V @ V).sum().backward()
    torch.testing.assert_close(other.grad, torch.ones(4, 4) @ V.t())


def test_every_spelling_of_an_operator_takes_a_substitute() -> None:
    for run in (lambda: V * 3, lambda: 3 * V, lambda: operator.mul(V, 3), lambda: torch.mul(V, 3)):
        assert torch.equal(under(before("mul", lambda x, *_: (x + 1, *_)), run), (V + 1) * 3)
