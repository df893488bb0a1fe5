"""Operands of several data types on PyTorch, seen by a portable tool as PyTorch casts them."""

import itertools
from types import SimpleNamespace

import amanda
import numpy as np
import pytest
import torch
from amanda_contextmap.testing import reference

DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
]
CALLS = {
    "add": torch.add,
    "sub": torch.sub,
    "rsub": torch.rsub,
    "mul": torch.mul,
    "div": torch.div,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "eq": torch.eq,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "where": lambda x, y: torch.where(torch.tensor([True, False, True]), x, y),
    "add_": lambda x, y: x.clone().add_(y),
    "eq_": lambda x, y: x.clone().eq_(y),
}


def number(dtype):
    return torch.tensor(3 if dtype != torch.bool else True, dtype=dtype)


def vector(dtype):
    return torch.tensor([1, 0, 5]).to(dtype)


PAIRS = [
    *((vector(a), number(b)) for a, b in itertools.product(DTYPES, DTYPES)),
    *((number(a), vector(b)) for a, b in itertools.product(DTYPES, DTYPES)),
    *((vector(a), vector(b)) for a, b in itertools.product(DTYPES, DTYPES)),
]


class Last(amanda.Tool):
    """Keeps what it sees of the operator that runs last, in ONNX's words."""

    def __init__(self):
        super().__init__(namespace="onnx")
        self.add_inst_for_op(self.analyze)

    def analyze(self, ctx):
        self.seen = SimpleNamespace(
            type=ctx.op.type, roles=list(ctx.input_names), attrs=dict(ctx.attrs)
        )
        ctx.insert_before_op(self.before)
        ctx.insert_after_op(self.after)

    def before(self, *inputs) -> None:
        self.seen.inputs = [tensor.clone() for tensor in inputs]

    def after(self, *outputs) -> None:
        self.seen.outputs = [tensor.clone() for tensor in outputs]


def seen_of_each(call, all_operands):
    """What is seen of a call with each list of operands, as if each had a scope of its own."""
    tool, found = Last(), []
    with amanda.apply(tool), amanda.cache_disabled():
        for operands in all_operands:
            call(*operands)
            found.append(tool.seen)
    return found


def seen(call, *operands):
    (found,) = seen_of_each(call, [operands])
    return found


def exists(call, x, y):
    """Whether PyTorch has it for these types."""
    try:
        call(x, y)
    except (RuntimeError, NotImplementedError):
        return False
    return True


@pytest.mark.parametrize("name", CALLS)
def test_what_is_shown_is_what_is_computed_whatever_the_types(name):
    pairs = [(x, y) for x, y in PAIRS if exists(CALLS[name], x, y)]
    shown = 0
    for (x, y), seen in zip(pairs, seen_of_each(CALLS[name], pairs), strict=True):
        if "::" in seen.type or torch.bfloat16 in {x.dtype, y.dtype}:
            continue
        arrays = [tensor.numpy() for tensor in seen.inputs]
        (expected,) = reference(seen.type, seen.roles, arrays, seen.attrs)
        found = seen.outputs[0].numpy()
        assert found.dtype == expected.dtype, (name, x, y)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(found, expected, 1e-3, err_msg=f"{name} {x} {y}")
        shown += x.dtype != y.dtype
    assert shown >= 20 or name.endswith("_")


@pytest.mark.parametrize(
    ("x", "y", "dtype"),
    [
        (vector(torch.float32), number(torch.int32), torch.float32),
        (vector(torch.float32), number(torch.float64), torch.float32),
        (vector(torch.int32), number(torch.float32), torch.float32),
        (vector(torch.float64), vector(torch.int64), torch.float64),
        (vector(torch.int32), number(torch.int64), torch.int32),
        (vector(torch.bool), vector(torch.int8), torch.int8),
        (vector(torch.float16), vector(torch.int64), torch.float16),
    ],
)
def test_operands_are_seen_in_the_type_that_is_computed_in(x, y, dtype):
    for tool in (seen(torch.add, x, y), seen(torch.add, y, x)):
        assert tool.type == "Add"
        assert [tensor.dtype for tensor in tool.inputs] == [dtype, dtype]
        assert tool.outputs[0].dtype == dtype


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (vector(torch.float32), vector(torch.float64)),  # a tool's float64 would be rounded
        (vector(torch.float64), number(torch.float32)),
        (vector(torch.float16), number(torch.int64)),  # taken in higher precision than float16
        (vector(torch.float16), vector(torch.bfloat16)),  # computed in float32
        (vector(torch.uint8), vector(torch.int8)),  # computed in int16
    ],
)
def test_where_it_cannot_be_shown_the_operator_keeps_its_own_name(x, y):
    assert seen(torch.add, x, y).type == "torch::add"


def test_what_is_cast_back_after_it_is_computed_keeps_its_own_name():
    x = torch.ones(3, dtype=torch.float16)
    assert seen(lambda: x.add_(torch.ones(3))).type == "torch::add_"
    assert seen(lambda: torch.ones(3).add_(number(torch.int32))).type == "Add"
    assert seen(lambda: torch.ones(3).eq_(torch.ones(3))).type == "torch::eq_"


class TestWhatAToolReturns:
    def run(self, routine, x, y, **insertion):
        tool = amanda.Tool(namespace="onnx")
        tool.add_inst_for_op(lambda ctx: ctx.insert_before_op(routine, **insertion), ops=["Add"])
        with amanda.apply(tool):
            return x + y

    def test_is_turned_back(self):
        x, y = vector(torch.float32), number(torch.int32)
        result = self.run(lambda b: b * 2, x, y, inputs=["B"])
        torch.testing.assert_close(result, torch.tensor([7.0, 6.0, 11.0]))
        result = self.run(lambda *both: both, x, y)
        torch.testing.assert_close(result, x + y, rtol=0, atol=0)

    def test_is_refused_where_the_operator_has_no_room_for_it(self):
        x, y = vector(torch.float32), number(torch.int32)
        with pytest.raises(amanda.RoutineError, match=r"is no int32, .* casts to float32"):
            self.run(lambda b: b * 0.5, x, y, inputs=["B"])

    def test_a_replacement_is_computed_in_that_type(self):
        tool = amanda.Tool(namespace="onnx")
        tool.add_inst_for_op(lambda ctx: ctx.replace_op(lambda a, b: a * b + 0.5), ops=["Add"])
        with amanda.apply(tool):
            result = vector(torch.float32) + number(torch.int64)
        torch.testing.assert_close(result, torch.tensor([3.5, 0.5, 15.5]))

    def test_gradients_go_to_what_has_some(self):
        x = torch.ones(3, requires_grad=True)
        found, tool = [], amanda.Tool(namespace="onnx")

        def look(ctx):
            found.append(list(ctx.grad_inputs))
            ctx.insert_on_grad_inputs(lambda g: g * 2, inputs=["A"])

        tool.add_inst_for_gradient(look, ops=["Mul"])
        with amanda.apply(tool):
            (x * vector(torch.int64)).sum().backward()
        assert found[0][1] is None
        torch.testing.assert_close(x.grad, torch.tensor([2.0, 0.0, 10.0]))
