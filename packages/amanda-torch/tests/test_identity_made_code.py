"""S4 and S5 for code that a program makes while it runs: equal code is the same place."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import Record
from amanda_torch.places import codes
from torch import Tensor, nn
from watching import held, ids

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.randn(2, 3)


def defined(text: str, filename: str = "<string>") -> Any:
    """The function ``f`` that a text defines, with code of its own."""
    names: dict[str, Any] = {"torch": torch}
    exec(compile(text, filename, "exec"), names)
    return names["f"]


def test_a_module_that_is_recompiled_in_each_step_has_the_operators_of_the_first() -> None:
    model = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)))

    def step() -> None:
        model.recompile()
        model(X)

    first, *others = ids(*[step] * 10)
    assert sorted(first) == ["0/linear", "1/relu", "2/linear"]
    assert others == [first] * 9


def test_a_part_that_is_recompiled_has_the_operators_of_the_first() -> None:
    part = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    model = nn.Sequential(part, nn.Tanh())

    def step() -> None:
        part.recompile()
        model(X)

    first, *others = ids(*[step] * 5)
    assert first == ["0.0/linear", "0.1/relu", "1/tanh"]
    assert others == [first] * 4


@pytest.mark.parametrize("filename", ["<string>", "<stdin>", "made.py"])
def test_functions_made_of_the_same_text_are_one_place(filename: str) -> None:
    def run() -> None:
        defined("def f(x): return x.relu().exp()", filename)(X)

    assert ids(*[run] * 9) == [["relu", "exp"]] * 9


def test_functions_made_of_other_text_are_other_places() -> None:
    def run() -> None:
        for text in ("def f(x): return x.relu()", "def f(x): return (x + 1).relu()"):
            defined(text)(X)

    first, second = ids(run, run)
    assert len(set(first)) == 3
    assert second == first


def test_equal_text_in_two_files_is_two_places() -> None:
    text = "def f(x): return x.relu()"

    def run() -> None:
        for name in ("one.py", "other.py"):
            defined(text, name)(X)

    assert ids(run) == [["relu", "relu#2"]]


def test_a_helper_made_anew_within_a_module_is_one_place_in_each_call_of_it() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            helper = defined("def f(fc, x): return fc(x).relu()")
            return helper(self.fc, helper(self.fc, x))

    model = Model()
    first, *others = ids(*[lambda: model(X)] * 5)
    assert first == ["fc/linear", "relu", "fc/linear#2", "relu#2"]
    assert others == [first] * 4


def test_lambdas_and_nested_functions_made_anew_are_one_place() -> None:
    def run() -> None:
        def nested(x: Tensor) -> Tensor:
            return (lambda y: y.relu())(x)

        nested(X)

    assert len({tuple(found) for found in ids(*[run] * 5)}) == 1


def test_a_loss_whose_code_is_made_anew_is_one_place_in_training() -> None:
    model = nn.Linear(3, 3)

    def step() -> None:
        defined("def f(model, x): return model(x).square().mean()")(model, X).backward()

    first, *others = ids(*[step] * 5)
    assert others == [first] * 4


def test_code_made_anew_does_not_make_what_is_kept_grow() -> None:
    sizes = []
    with amanda.apply(tool := Record()):
        for _ in range(20):
            defined("def f(x): return x.relu()")(X)
            gc.collect()  # a function and the names that it was defined among are a circle
            sizes.append(held())
    assert sizes[19] == sizes[2]
    assert tool.analyzed == ["relu"]


def test_text_that_is_another_in_each_step_does_not_make_the_cache_grow_without_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(codes, "_MADE", 20)
    tool = Record("mul")
    with amanda.apply(tool):
        for i in range(100):
            defined(f"def f(x): y = {i}; return x * 2")(X)
    assert len(tool.ran) == 100
    assert len(set(tool.ran)) <= 20


def test_made_code_that_is_gone_is_not_taken_for_what_comes_after_it() -> None:
    """Python gives the memory of code that is gone to other code."""
    run: list[Callable[[Tensor], Tensor]] = []
    with amanda.apply(tool := Record(["relu", "exp"])):
        for i in range(60):
            type = ("relu", "exp")[i % 2]
            run[:] = [defined(f"def f(x): return x.{type}()")]
            run[0](X)
            assert tool.ran[-1].partition("#")[0] == type
    assert len(set(tool.ran)) == 2
