"""Numbers that stand for tensors: what is computed with them, and what a tool is shown of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from amanda.testing.probes import Describe, Record, after, before, under
from amanda_torch.operators.wrapped import wrapped
from leaves import leaf
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Callable

    import amanda

DATA = torch.tensor([0.5, -1.0, 2.0])
MASK = DATA > 0
HALVES = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float16)
INTEGERS = torch.tensor([1, 2, 3])


class Times(torch.nn.Module):
    """Multiplies by a tensor or a number."""

    def __init__(self, factor: Tensor | float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


PROGRAMS: dict[str, Callable[[], Tensor]] = {
    "a comparison": lambda: DATA <= 0.5,
    "a choice between numbers": lambda: torch.where(MASK, 1, 0.25),
    "a choice of a number": lambda: torch.where(MASK, 2.5, DATA),
    "a power of a number": lambda: 2**INTEGERS,
    "a division by a number": lambda: INTEGERS % 2.5,
    "a number shifted": lambda: 1 << INTEGERS,
    "a complex number": lambda: DATA * 2j,
    "half precision": lambda: torch.xlogy(HALVES, 3.0),
    "a filled part": lambda: DATA.clone().index_fill_(0, INTEGERS[:1], 7),
    "a part that is set": lambda: DATA.clone().index_put_((MASK,), torch.tensor(3.0)),
    "a mean": lambda: HALVES.mean(0),
    "negative zero": lambda: torch.copysign(DATA, -0.0),
    "not a number": lambda: torch.fmax(DATA, torch.full((), float("nan"))).nan_to_num(2.0),
    "a quantile": lambda: torch.quantile(DATA, 0.3),
    "a truth value": lambda: torch.logical_xor(MASK, torch.tensor(True)) ^ True,
}
TOOLS: dict[str, Callable[[], list[amanda.Tool]]] = {
    "all": lambda: [Record()],
    "what converts": lambda: [Record(["to", "_to_copy", "clone", "resolve_conj"])],
    "all, and some": lambda: [Record(), Record(["eq", "gt", "where", "mul", "pow", "div_"])],
}


@pytest.mark.parametrize("recording", [True, False])
@pytest.mark.parametrize("tools", TOOLS.values(), ids=TOOLS)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_with_numbers_give_what_they_give(
    program: Callable[[], Tensor], tools: Callable[[], list[amanda.Tool]], recording: bool
) -> None:
    with torch.set_grad_enabled(recording):
        plain = program()
        got = under(tools(), program)
    assert got.dtype == plain.dtype
    assert torch.equal(got, plain)


def test_a_number_is_an_attribute() -> None:
    tool = Describe("mul")
    under(tool, lambda: DATA * 3)
    assert tool.names["mul"] == ["self"]
    assert tool.attrs["mul"] == {"other": 3}


def test_a_number_inside_of_a_composite_operator_is_an_attribute() -> None:
    tool = Describe("where")
    under([tool, Record("mm")], lambda: torch.where(MASK, DATA, 0.25))
    assert tool.names["where"] == ["condition", "self"]
    assert tool.attrs["where"] == {"other": 0.25}


def test_a_number_in_place_of_a_tensor_is_another_operator() -> None:
    tool, model = Record("mul"), torch.nn.Sequential(Times(1.0))

    def program() -> None:
        for factor in (DATA, 2.0, DATA, 2.0):
            model[0].factor = factor
            model(DATA)

    under(tool, program)
    assert len(set(tool.ran)) == 2
    assert tool.ran[:2] == tool.ran[2:]


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (2, torch.int64),
        (2.0, torch.float64),
        (2j, torch.complex128),
        (True, torch.bool),
    ],
)
def test_a_number_is_wrapped_as_torch_wraps_it(
    number: complex, dtype: torch.dtype, mode: Callable[[], Any]
) -> None:
    with mode():
        recording = torch.is_grad_enabled()
        tensor = wrapped(number)
        assert torch.is_grad_enabled() == recording
    assert tensor.dtype == dtype
    assert tensor.item() == number
    assert (HALVES + tensor).dtype == (HALVES + number).dtype
    assert (INTEGERS + tensor).dtype == (INTEGERS + number).dtype


def test_wrapping_a_number_shows_in_no_mode_hook_or_profile() -> None:
    calls: list[Any] = []

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, *rest: Any) -> Any:
            calls.append(func)

    class Function(TorchFunctionMode):
        def __torch_function__(self, func: Any, *rest: Any) -> Any:
            calls.append(func)

    hooks = torch.autograd.graph.saved_tensors_hooks(calls.append, calls.append)
    with torch.profiler.profile() as profile, Dispatch(), Function(), hooks:
        tensor = wrapped(3)
    assert tensor.item() == 3
    assert calls == []
    assert [event.key for event in profile.events()] == []


def test_a_masked_operand_beside_a_number() -> None:
    x = leaf(4)
    y = under(before("mul", lambda x: x * 0, inputs=[0]), lambda: x * 3 + 1)
    assert torch.equal(y, torch.ones(4))
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((4,), 3.0))


def test_an_operator_with_a_number_is_replaced_where_a_tool_looks_inside() -> None:
    flipped = after("ne", torch.logical_not)  # isfinite(x) is (x == x) * (abs(x) != inf)
    data = torch.tensor([1.0, float("inf")])
    assert under([Record("isfinite"), flipped], lambda: data.isfinite()).tolist() == [False, True]


def test_a_jvp_with_numbers() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.where(x > 0, 2.0 * x, 0.5) ** 2

    plain = torch.func.jvp(function, (DATA,), (torch.ones(3),))
    got = under(
        [Record(), Record("gt")], lambda: torch.func.jvp(function, (DATA,), (torch.ones(3),))
    )
    assert all(map(torch.equal, got, plain))


def test_a_vmapped_function_with_numbers() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.where(x > 0, x, 0.5) % 0.75

    plain = torch.vmap(function)(DATA)
    assert torch.equal(under([Record(), Record("gt")], lambda: torch.vmap(function)(DATA)), plain)


def test_a_number_has_no_tangent_in_what_a_derivative_computes() -> None:
    def function(x: Tensor) -> Tensor:
        return (x / 2.0).sin()  # whose derivative multiplies the tangent of the number

    plain = torch.func.jvp(function, (DATA,), (torch.ones(3),))
    got = under(Record("mul"), lambda: torch.func.jvp(function, (DATA,), (torch.ones(3),)))
    assert all(map(torch.equal, got, plain))


def test_what_can_be_overridden_is_the_same() -> None:
    """Compilers ask for it, too, and it is computed once in a process."""
    compute: Any = torch.overrides._get_overridable_functions.__wrapped__
    _, names = compute()
    _, shown = under(Record(), compute)
    assert sorted(shown.values()) == sorted(names.values())
