"""S4 outside of module calls: methods of modules, functions, and code without modules."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from watching import ids

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
