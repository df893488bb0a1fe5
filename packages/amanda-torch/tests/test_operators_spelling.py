"""However a program spells an operator, it is one operator of one type."""

from __future__ import annotations

import io
import operator
import warnings
from typing import TYPE_CHECKING

import pytest
import torch
from amanda.testing.probes import Record, recorded, under
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.randn(2, 3, 8, 8)
W = torch.randn(4, 3, 3, 3)
V = torch.randn(4, 4)

SPELLINGS = {
    "conv2d": [
        lambda: functional.conv2d(X, W),
        lambda: torch.conv2d(X, W),
        lambda: nn.Conv2d(3, 4, 3)(X),
        lambda: torch.ops.aten.conv2d(X, W),
        lambda: torch.ops.aten.conv2d.default(X, W),
        lambda: functional.conv2d(input=X, weight=W, padding="same"),
    ],
    "linear": [
        lambda: functional.linear(V, V),
        lambda: nn.Linear(4, 2)(V),
        lambda: nn.LazyLinear(2)(V),
        lambda: torch.ops.aten.linear(V, V),
    ],
    "add": [
        lambda: V + V,
        lambda: V + 1,
        lambda: 1 + V,
        lambda: V.add(V),
        lambda: torch.add(V, V, alpha=2),
        lambda: operator.add(V, V),
        lambda: torch.ops.aten.add.Tensor(V, V),
    ],
    "add_": [
        lambda: V.clone().add_(1),
        lambda: operator.iadd(V.clone(), V),
        lambda: torch.ops.aten.add_(V.clone(), V),
    ],
    "matmul": [
        lambda: V @ V,
        lambda: V.matmul(V),
        lambda: torch.matmul(V, V),
        lambda: V.__rmatmul__(V),
    ],
    "relu": [
        lambda: torch.relu(V),
        lambda: V.relu(),
        lambda: functional.relu(V),
        lambda: nn.ReLU()(V),
    ],
    "relu_": [
        lambda: torch.relu_(V.clone()),
        lambda: V.clone().relu_(),
        lambda: functional.relu(V.clone(), inplace=True),
        lambda: nn.ReLU(inplace=True)(V.clone()),
    ],
    "softmax": [
        lambda: V.softmax(0),
        lambda: torch.softmax(V, dim=0),
        lambda: nn.Softmax(0)(V),
        lambda: functional.softmax(V, 0, dtype=torch.float64),
    ],
    "max": [
        lambda: V.max(),
        lambda: torch.max(V, V),
        lambda: V.max(dim=0),
    ],
    "cross_entropy_loss": [
        lambda: functional.cross_entropy(V, torch.arange(4)),
        lambda: nn.CrossEntropyLoss()(V, V.softmax(-1)),
    ],
    "batch_norm": [
        lambda: functional.batch_norm(V, None, None, training=True),
        lambda: nn.BatchNorm1d(4)(V),
        lambda: nn.BatchNorm1d(4).eval()(V),
    ],
    "lstm": [
        lambda: nn.LSTM(4, 3)(V),
        lambda: nn.LSTM(4, 3, num_layers=2, bidirectional=True)(V),
        lambda: nn.LSTM(4, 3)(nn.utils.rnn.pack_sequence([V, V[:2]])),
    ],
    "index_put_": [
        lambda: V.clone().index_put_((torch.tensor([0]),), V[0]),
        lambda: operator.setitem(V.clone(), torch.tensor([0]), 0.0),
    ],
}


@pytest.mark.parametrize(
    ("type", "spelling"),
    [(type, spelling) for type, spellings in SPELLINGS.items() for spelling in spellings],
    ids=[f"{t}-{i}" for t, spellings in SPELLINGS.items() for i in range(len(spellings))],
)
def test_every_spelling_is_one_operator(type: str, spelling: Callable[[], object]) -> None:
    assert recorded(spelling, type) == [type]


@pytest.mark.parametrize("type", SPELLINGS)
def test_also_among_all_operators(type: str) -> None:
    spellings = SPELLINGS[type]
    assert recorded(lambda: [spelling() for spelling in spellings]).count(type) == len(spellings)


def test_functional_and_in_place_are_types_of_their_own() -> None:
    assert recorded(lambda: V.clone().relu_(), "relu") == []
    assert recorded(lambda: V.relu(), "relu_") == []


def test_all_overloads_are_of_one_type() -> None:
    tool = Record("add")
    under(tool, lambda: (V + V, V + 1, torch.add(V, V, out=torch.empty(0))))
    assert tool.types == ["add"] * 3


def scripted() -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module: torch.jit.ScriptModule = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    return module


def traced() -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module: torch.jit.ScriptModule = torch.jit.trace(
            nn.Sequential(nn.Linear(4, 4), nn.ReLU()), V
        )
    return module


def loaded() -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        file = io.BytesIO()
        torch.jit.save(scripted(), file)
        file.seek(0)
        module: torch.jit.ScriptModule = torch.jit.load(file)
    return module


@pytest.mark.parametrize("make", [scripted, traced, loaded])
def test_torchscript_runs_the_same_operators(make: Callable[[], torch.jit.ScriptModule]) -> None:
    module = make()
    for _ in range(3):  # its executor rewrites the program while it warms up
        assert recorded(lambda: module(V), "linear", "relu") == ["linear", "relu"]


def test_a_tensors_own_arithmetic_in_a_python_loop() -> None:
    def run() -> None:
        x = V
        for _ in range(3):
            x = x * 2 - 1

    assert recorded(run, "mul", "sub") == ["mul", "sub"] * 3
