"""Operators that take functions: what runs in them is seen, and changes nothing."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import Observe, Record, Watch, after, before, replace, under
from leaves import leaf
from torch import Tensor, nn
from torch._higher_order_ops import associative_scan, scan
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Callable

WEIGHT = torch.linspace(-1, 1, 16).reshape(4, 4)


def cond(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x @ WEIGHT, lambda x: x.sin() @ WEIGHT, (x,))


def loop(x: Tensor) -> Any:
    start = (torch.tensor(0), x)
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x @ WEIGHT), start)


def over_rows(x: Tensor) -> Any:
    return map_rows(lambda row, w: row @ w, x, WEIGHT)


def cumulated(x: Tensor) -> Any:
    return scan(lambda carry, row: (carry @ WEIGHT + row, carry.sin()), torch.zeros(4), x)


def associated(x: Tensor) -> Any:
    return associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic")


def attention(x: Tensor) -> Any:
    q = x.reshape(1, 1, 4, 4)
    return flex_attention(q, q + 1, q - 1, score_mod=lambda score, b, h, i, j: score + (i - j))


# A program, and how many products it takes.
PROGRAMS: dict[str, tuple[Callable[[Tensor], Any], str, int]] = {
    "cond": (cond, "matmul", 1),
    "while_loop": (loop, "matmul", 3),
    "map": (over_rows, "matmul", 4),
    "associative_scan": (associated, "mul", 4),
    "flex_attention": (attention, "matmul", 2),
}


@pytest.fixture(autouse=True)
def _compiler() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch._dynamo.reset()


@pytest.mark.parametrize(("program", "type", "count"), PROGRAMS.values(), ids=PROGRAMS)
def test_what_runs_in_them_is_seen(program: Callable[[Tensor], Any], type: str, count: int) -> None:
    x = torch.ones(4, 4)
    tool = Record()
    under(tool, lambda: program(x))
    assert tool.types.count(type) == count
    tool = Record(type)
    under(tool, lambda: program(x))
    assert tool.types.count(type) == count


@pytest.mark.parametrize("program", [cond, loop, over_rows, cumulated, associated])
def test_looking_at_them_changes_neither_results_nor_gradients(
    program: Callable[[Tensor], Any],
) -> None:
    def step() -> list[Tensor]:
        torch.manual_seed(0)
        x = leaf(4, 4)
        outputs = tree_leaves(program(x))
        sum(y.sum() for y in outputs if y.requires_grad).backward()  # type: ignore[union-attr]
        return [*outputs, x.grad]

    plain, observed = step(), under(Observe(), step)
    assert all(torch.equal(a, b) for a, b in zip(plain, observed, strict=True))


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, lambda x: self.layer(x) @ WEIGHT, lambda x: x.cos(), (x,))
        assert isinstance(y, Tensor)
        return y


def test_ids_are_the_same_in_every_iteration() -> None:
    model, tool = nn.Sequential(Gated()), Record()
    runs = []

    def iterate() -> None:
        for sign in (1, -1, 1, -1):
            tool.ran.clear()
            model(sign * torch.ones(2, 4)).sum().backward()
            runs.append(list(tool.ran))

    under(tool, iterate)
    assert runs[:2] == runs[2:]
    assert [type.rpartition("/")[2] for type in runs[0]].count("linear") == 1
    assert "linear" not in str(runs[1])


def test_a_masked_operand_without_gradients() -> None:
    with torch.no_grad():
        y = under(before("matmul", lambda x: x * 0, inputs=[0]), lambda: cond(torch.ones(4, 4)))
    assert torch.equal(y, torch.zeros(4, 4))


@pytest.mark.parametrize(
    "tool",
    [
        before("matmul", lambda x: x * 0, inputs=[0]),
        after("matmul", lambda y: y * 0),
        replace("matmul", lambda x, y: x),
    ],
)
def test_a_substitute_that_the_derived_gradient_would_miss_is_refused(tool: amanda.Tool) -> None:
    with pytest.raises(amanda.UnsupportedError, match=r"matmul.*Insert.*cond.*no_grad"):
        under(tool, lambda: cond(leaf(4, 4)))
    assert cond(torch.ones(4, 4)).shape == (4, 4)


def test_a_gradient_that_no_tool_sees_is_said_to_be_missing() -> None:
    tool = Watch(lambda ctx: None, "matmul", gradient=True)
    with pytest.warns(amanda.AmandaWarning, match=r"matmul.*: the gradient .* within cond"):
        under(tool, lambda: cond(leaf(4, 4)))


def test_after_a_scope_they_are_captured_as_ever() -> None:
    x = torch.ones(4, 4)
    plain = attention(x)
    assert torch.equal(under(Record(), lambda: attention(x)), plain)
    assert torch.equal(attention(x), plain)
