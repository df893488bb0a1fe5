"""S4 outside of module calls: methods of modules, functions, and code without modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import Record
from amanda_torch.operators.settings import APART
from torch import Tensor, nn
from torch.nn import functional
from watching import ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

X = torch.randn(2, 3)


# Methods of modules, and functions that are given one


class Encoder(nn.Module):
    """Has methods beside ``forward``, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.weight = nn.Parameter(torch.randn(3, 3))

    def encode(self, x: Tensor) -> Tensor:
        return functional.linear(self.inner(x), self.weight)

    def generate(self, x: Tensor, steps: int) -> Tensor:
        for _ in range(steps):
            x = self(x).softmax(-1)
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).tanh()


def test_parts_that_a_method_calls_are_named_as_parts_of_the_model() -> None:
    model = Encoder()
    assert ids(lambda: model.encode(X)) == [["inner/linear", "linear"]]


def test_methods_of_two_models_share_no_operator() -> None:
    models = [Encoder(), Encoder()]

    def step() -> None:
        for model in models:
            model.encode(X)

    first, second = ids(step, step)
    assert len(set(first)) == 4
    assert second == first


def test_a_method_is_one_place_wherever_it_is_called_from() -> None:
    model = Encoder()

    def elsewhere() -> None:
        model.encode(X)

    first, second = ids(lambda: model.encode(X), elsewhere)
    assert first == second


def test_a_generation_loop_has_the_operators_of_one_step() -> None:
    model = Encoder()
    one, many = ids(lambda: model.generate(X, 1), lambda: model.generate(X, 50))
    assert one == ["inner/linear", "tanh", "softmax"]
    assert many == one * 50


def test_a_function_that_is_given_a_model_has_operators_for_each() -> None:
    def loss(model: nn.Module) -> Tensor:
        return (model(X) - 1).square().mean()

    models = [nn.Sequential(nn.Linear(3, 3)) for _ in range(2)]
    first, second = ids(lambda: [loss(m) for m in models], lambda: [loss(m) for m in models])
    assert len(set(first)) == 8
    assert second == first


def test_operators_of_initialization_are_those_of_the_module() -> None:
    def build() -> None:
        kept.append(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)))

    kept: list[nn.Module] = []
    (found,) = ids(build)
    assert found == ["uniform_", "uniform_#2", "uniform_#1@2", "uniform_#2@2"]


def test_a_module_that_computes_before_it_is_one() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            size = int(torch.ones(3).sum())
            super().__init__()
            self.fc = nn.Linear(size, size)

    (found,) = ids(Early)
    assert found[:2] == ["ones", "sum"]


# Code without modules


def dense(x: Tensor, weight: Tensor) -> Tensor:
    return functional.linear(x, weight).relu()


def test_a_helper_called_from_two_places_is_two_operators() -> None:
    weights = [torch.randn(3, 3), torch.randn(3, 3)]

    def network() -> Tensor:
        x = dense(X, weights[0])
        return dense(x, weights[1])

    first, second = ids(network, network)
    assert first == second == ["linear", "relu", "linear#2", "relu#2"]


def test_a_helper_called_in_a_loop_is_one_place() -> None:
    weights = [torch.randn(3, 3) for _ in range(3)]

    def network() -> None:
        for weight in weights:
            dense(X, weight)

    assert ids(network) == [["linear", "relu"] * 3]


# One place with several parameters


def test_a_place_is_another_operator_for_each_parameter() -> None:
    weights: list[Tensor] = [nn.Parameter(torch.randn(3, 3)) for _ in range(2)]

    def network() -> None:
        for weight in weights:
            (X @ weight.T).relu()

    with torch.no_grad():
        (without_gradients,) = ids(network)
    (found,) = ids(network)
    weights += [nn.Parameter(torch.randn(3, 3)), torch.eye(3)]
    (more,) = ids(network)
    assert found == ["numpy_T", "matmul", "relu", "numpy_T#2", "matmul#2", "relu"]
    assert without_gradients == found
    assert more == [*found, "numpy_T#3", "matmul#3", "relu", "numpy_T#4", "matmul#4", "relu"]


def test_a_method_that_goes_over_the_parameters_has_an_operator_for_each() -> None:
    class Penalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def penalty(self) -> Tensor:
            return torch.stack([p.square().sum() for p in self.fc.parameters()]).sum()

    model = Penalized()
    first, second = ids(model.penalty, model.penalty)
    assert first == ["square", "sum", "square#2", "sum", "stack", "sum#2"]
    assert second == first


def test_casts_of_parameters_are_told_apart_as_these_are() -> None:
    weights = [nn.Parameter(torch.randn(3, 3)) for _ in range(2)]

    def network() -> None:
        for weight in weights:
            X.double() @ weight.double()

    (found,) = ids(network)
    assert found == ["to", "to#2", "matmul", "to", "to#3", "matmul#2"]


def test_an_update_of_an_optimizer_is_one_operator_for_all_parameters() -> None:
    parameters = [nn.Parameter(torch.zeros(n)) for n in (2, 3)]
    for p in parameters:
        p.grad = torch.ones_like(p)
    optimizer = torch.optim.SGD(parameters, lr=0.5, foreach=False)
    record = Record(ops=["add_"])
    with amanda.apply(record):
        optimizer.step()
    assert record.analyzed == ["SGD/add_"]


def test_the_operators_of_a_parameter_go_with_it() -> None:
    def square() -> None:
        nn.Parameter(torch.empty(2)).square()

    assert ids(square) == ids(square) == [["square"]]


# One place with several settings


class Attributes(amanda.Tool):
    """Notes the attributes of operators when it is asked about them, and their ids when they run.

    Attributes:
        shown: by id, what an attribute was; the error where that cannot be told.
        ran: the ids, one for each execution.
    """

    def __init__(self, type: str, name: str) -> None:
        super().__init__()
        self.shown: dict[str, Any] = {}
        self.ran: list[str] = []
        self.name = name
        self.add_inst_for_op(self.analyze, ops=[type])

    def analyze(self, ctx: amanda.OpContext) -> None:
        try:
            self.shown[ctx.op.id] = ctx.attrs[self.name]
        except amanda.ValueUnavailableError as error:
            self.shown[ctx.op.id] = error
        ctx.insert_before_op(self.note, id=ctx.op.id)

    def note(self, *tensors: Tensor, id: str) -> None:
        self.ran.append(id)


CUBE = torch.randn(4, 4, 4)


@pytest.mark.parametrize(
    ("type", "name", "values", "run"),
    [
        ("softmax", "dim", [1, 0, 2], lambda dim: CUBE.softmax(dim)),
        ("sum", "dim", [[0], [0, 1], [-1]], lambda dims: CUBE.sum(dims)),
        ("sum", "keepdim", [True, False], lambda keep: CUBE.sum([1], keepdim=keep)),
        ("permute", "dims", [[0, 2, 1], [2, 1, 0]], lambda dims: CUBE.permute(*dims)),
        ("mul", "other", [2, 2.0, True], lambda number: CUBE * number),
        ("leaky_relu", "negative_slope", [0.1, 0.2], lambda x: functional.leaky_relu(CUBE, x)),
        ("gelu", "approximate", ["none", "tanh"], lambda x: functional.gelu(CUBE, approximate=x)),
        ("clamp", "max", [None, 1.0], lambda high: CUBE.clamp(0.0, high)),
        ("flip", "dims", [[0], [1]], lambda dims: CUBE.flip(dims)),
    ],
)
def test_other_settings_at_one_place_are_another_operator(
    type: str, name: str, values: list[Any], run: Callable[[Any], Tensor]
) -> None:
    tool = Attributes(type, name)
    with amanda.apply(tool):
        for _ in range(2):
            for value in values:
                run(value)
    numbered = [type, *(f"{type}#{i}" for i in range(2, len(values) + 1))]
    assert tool.shown == dict(zip(numbered, values, strict=True))
    assert [repr(shown) for shown in tool.shown.values()] == [repr(value) for value in values]
    assert tool.ran == numbered * 2


def test_a_dtype_is_a_setting_too() -> None:
    tool = Attributes("softmax", "dtype")
    with amanda.apply(tool):
        for dtype in (torch.float32, torch.float64):
            CUBE.softmax(0, dtype=dtype)
    assert tool.shown == {"softmax": torch.float32, "softmax#2": torch.float64}


def test_an_index_that_takes_several_slices_has_one_for_each() -> None:
    tool = Attributes("slice", "step")
    with amanda.apply(tool):
        for _ in range(2):
            CUBE[0, 1:, ::2]
    assert tool.shown == {"slice": 1, "slice#2": 2}
    assert tool.ran == ["slice", "slice#2"] * 2


def test_of_too_many_settings_none_is_shown_that_differs() -> None:
    tool = Attributes("mul", "other")
    with amanda.apply(tool):
        for i in range(1000):
            X * i
    *known, rest = tool.shown.values()
    assert known == list(range(APART))
    with pytest.raises(amanda.ValueUnavailableError, match="differs from one execution to the"):
        raise rest
    assert tool.ran[APART:] == [f"mul#{APART + 1}"] * (1000 - APART)


@pytest.mark.parametrize(
    "read",
    [
        lambda attrs: attrs["other"],
        lambda attrs: attrs.get("other"),
        lambda attrs: attrs.get("other", 1),
        lambda attrs: list(attrs.values()),
        lambda attrs: list(attrs.items()),
        lambda attrs: dict(attrs),
        lambda attrs: {**attrs},
        lambda attrs: torch.mul(X, **attrs),
        lambda attrs: attrs == {"other": APART},
    ],
    ids=["index", "get", "default", "values", "items", "dict", "copy", "call", "equal"],
)
def test_one_that_differs_is_refused_however_the_attributes_are_read(
    read: Callable[[Mapping[str, Any]], object],
) -> None:
    shown: list[Mapping[str, Any]] = []
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: shown.append(ctx.attrs), ops=["mul"])
    with amanda.apply(tool):
        for i in range(2 * APART):
            X * i
    assert list(shown[-1]) == ["other"]
    assert "other" in shown[-1]
    with pytest.raises(amanda.ValueUnavailableError, match="'other' differs"):
        read(shown[-1])


def test_what_does_not_differ_is_shown_and_tells_apart_as_before() -> None:
    tool, numbers = Attributes("narrow", "dim"), torch.zeros(40, 40)
    with amanda.apply(tool):
        for dim in (0, 1):
            for start in range(20):
                numbers.narrow(dim, start, 1)
    assert list(tool.shown.values()) == [*[0] * APART, 0, 1]
    assert tool.ran[-20:] == [f"narrow#{APART + 2}"] * 20


def test_operators_of_one_place_are_bounded_whatever_differs() -> None:
    tool, numbers = Record("narrow"), torch.zeros(40, 40)
    with amanda.apply(tool):
        for start in range(20):
            for dim in (0, 1):
                for length in range(1, 20):
                    numbers.narrow(dim, start, length)
    assert len(tool.analyzed) <= 3 * APART + 1


def test_training_and_evaluation_are_one() -> None:
    tool = Record(["dropout", "batch_norm"])
    with amanda.apply(tool):
        for training in (True, False):
            functional.dropout(X, 0.5, training=training)
            functional.batch_norm(X, torch.zeros(3), torch.ones(3), training=training)
    assert tool.analyzed == ["dropout", "batch_norm"]


def test_tensors_of_other_shapes_and_types_are_no_settings() -> None:
    tool = Record("add")
    with amanda.apply(tool):
        for x in (X, X.double(), CUBE, X.clone().requires_grad_()):
            x + x
    assert tool.analyzed == ["add"]


def test_arguments_of_functions_are_settings() -> None:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, factor: float = 1.0) -> Tensor:
            return x * factor

    tool = Attributes("Scale", "factor")
    with amanda.apply(tool):
        for factor in (2.0, 3.0):
            Scale.apply(X, factor)  # type: ignore[no-untyped-call]
    assert tool.shown == {"Scale": 2.0, "Scale#2": 3.0}


# Helpers of modules


class Calls(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return soften(x, self.dim)


def soften(x: Tensor, dim: int) -> Tensor:
    return x.softmax(dim)


def test_a_helper_of_two_modules_is_an_operator_of_each() -> None:
    tool = Attributes("softmax", "dim")
    model = nn.Sequential(Calls(0), Calls(1))
    with amanda.apply(tool):
        for _ in range(2):
            model(CUBE)
            soften(CUBE, 2)
    assert tool.shown == {"0/softmax": 0, "1/softmax": 1, "softmax": 2}
    assert tool.ran == ["0/softmax", "1/softmax", "softmax"] * 2
