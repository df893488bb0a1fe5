"""Whose an operator is: the program's, wherever its code lies between an optimizer and it."""

from __future__ import annotations

import functools
import sys
import types
from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import Record
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

    Closure = Callable[[], Tensor]

X = torch.randn(2, 3)


class SignSGD(torch.optim.Optimizer):
    """An optimizer of the program's own, in the file of what it calls."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        with torch.enable_grad():
            loss = closure()
        self.descend()
        return loss

    def descend(self) -> None:
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.sub_(descent(parameter.grad), alpha=group["lr"])


def descent(gradient: Tensor) -> Tensor:
    return (lambda g: g.sign())(gradient)


def without_name(closure: Closure) -> Closure:
    def run() -> Tensor:
        return closure()

    return run


def renamed(closure: Closure) -> Closure:
    @functools.wraps(closure)
    def run() -> Tensor:
        return closure()

    return run


class Holder:
    def __init__(self, closure: Closure) -> None:
        self.closure = closure

    def __call__(self) -> Tensor:
        return self.closure()

    def method(self) -> Tensor:
        return self.closure()

    @classmethod
    def of_class(cls, closure: Closure) -> Tensor:
        return closure()


class Truthless(Holder):
    """A closure without a truth value or a length."""

    def __bool__(self) -> bool:
        raise TypeError("no truth value")

    def __len__(self) -> int:
        raise TypeError("no length")


class Inheriting(Holder):
    pass


def step(self: Any) -> Tensor:
    return self.closure()


SPELLINGS: dict[str, Callable[[Closure], Closure]] = {
    "function": lambda f: f,
    "lambda": lambda f: lambda: f(),
    "partial": functools.partial,
    "partial of a partial": lambda f: functools.partial(functools.partial(f)),
    "partial of a method": lambda f: functools.partial(Holder(f).method),
    "partial with arguments": lambda f: functools.partial(Holder.of_class, f),
    "object": Holder,
    "object of a derived class": Inheriting,
    "false object": Truthless,
    "method": lambda f: Holder(f).method,
    "method of the name step": lambda f: types.MethodType(step, Holder(f)),
    "decorated": renamed,
    "decorated without a name": without_name,
    "in torch's own wrapper": lambda f: torch.enable_grad()(f),
    "cached": lambda f: functools.lru_cache(maxsize=None)(f),
    "compiled": lambda f: torch.compile(f, backend="eager"),
    "bound C function": lambda f: functools.partial((g() for g in [f] * 9).__next__),
    "dunder": lambda f: Holder(f).__call__,
}


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS.keys())
@pytest.mark.parametrize(
    "make",
    [SignSGD, lambda ps: torch.optim.SGD(ps, lr=0.1), lambda ps: torch.optim.LBFGS(ps, max_iter=1)],
    ids=["own", "SGD", "LBFGS"],
)
def test_what_a_closure_computes_is_the_programs(make: Any, spell: Any) -> None:
    layer, tool = nn.Linear(3, 3), Record()
    optimizer = make(layer.parameters())

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (layer(X) * 2).square().mean()
        loss.backward()
        return loss

    with amanda.apply(tool):
        optimizer.step(spell(closure))
    assert [id.partition("#")[0] for id in tool.analyzed] == ["linear", "mul", "square", "mean"]


def test_the_optimizers_own_is_not() -> None:
    layer, everything, updates = nn.Linear(3, 3), Record(), Record(["sign", "sub_"])
    optimizer = SignSGD(layer.parameters())

    def closure() -> Tensor:
        loss = layer(X).square().mean()
        loss.backward()
        return loss

    with amanda.apply(everything, updates):
        optimizer.step(closure)
    assert updates.analyzed == ["SignSGD/sign", "SignSGD/sub_"]
    assert {"sign", "sub_"}.isdisjoint(id.partition("#")[0] for id in everything.analyzed)


def test_a_closure_that_has_another_name_is_the_programs_too() -> None:
    class Named(SignSGD):
        def step(self, *, loss: Any, **others: Any) -> Any:  # type: ignore[override]
            return super().step(loss)

    layer, tool = nn.Linear(3, 3), Record()
    optimizer = Named(layer.parameters())

    def closure() -> Tensor:
        loss = layer(X).exp().mean()
        loss.backward()
        return loss

    with amanda.apply(tool):
        optimizer.step(loss=closure)
    assert [id.partition("#")[0] for id in tool.analyzed] == ["linear", "exp", "mean"]


def test_hooks_of_an_optimizer_are_the_programs() -> None:
    layer, tool = nn.Linear(3, 3), Record()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def before(*_: Any) -> None:
        layer.weight.detach().cos()

    def after(*_: Any) -> None:
        layer.weight.detach().tan()

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)
    layer(X).sum().backward()
    with amanda.apply(tool):
        optimizer.step()
    assert [id.partition("#")[0] for id in tool.analyzed] == ["cos", "tan"]


def test_a_library_around_an_optimizer_changes_nothing() -> None:
    """As accelerate and schedulers have them: an optimizer that calls another one."""
    library = types.ModuleType("amanda_test_library")
    text = """
import torch

class Around(torch.optim.Optimizer):
    def __init__(self, inner):
        self.inner, self.param_groups, self.defaults = inner, inner.param_groups, {}

    def step(self, closure=None):
        return self.inner.step(lambda: halved(closure))

def halved(closure):
    return closure().div(2)
"""
    exec(compile(text, "amanda_test_library.py", "exec"), vars(library))
    layer, tool = nn.Linear(3, 3), Record()
    optimizer = library.Around(torch.optim.SGD(layer.parameters(), lr=0.1))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer.inner, 1)

    def closure() -> Tensor:
        loss = layer(X).exp().mean()
        loss.backward()
        return loss

    with amanda.apply(tool):
        for _ in range(2):
            optimizer.step(closure)
            scheduler.step()
    assert [id.partition("#")[0] for id in tool.analyzed] == ["linear", "exp", "mean", "div"]


def test_an_update_within_a_module_is_the_optimizers_too() -> None:
    class Adapting(nn.Module):
        """Takes a step within its forward, as in training at test time."""

        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            optimizer = SignSGD(self.fc.parameters())

            def closure() -> Tensor:
                loss = self.fc(x).cos().sum()
                loss.backward()
                return loss

            optimizer.step(closure)
            return self.fc(x).sin()

    model, tool, updates = nn.Sequential(Adapting()), Record(), Record("sign")
    with amanda.apply(tool, updates):
        model(X)
        model(X)
    expected = ["0.fc/linear", "0/cos", "0/sum", "0.fc/linear#2", "0/sin"]
    assert tool.analyzed == expected
    assert updates.analyzed == ["SignSGD/sign", "SignSGD/sign#2"]  # of weight and bias


def test_what_torch_splits_for_sharding_is_not_the_programs() -> None:
    """FSDP takes its parameters apart through the same Python functions as programs do."""
    names: dict[str, Any] = {"torch": torch, "__name__": "torch.distributed.fsdp.pretended"}
    exec("def views(x): return torch.split(x, 1), x.split(1)", names)
    everything, splits = Record(), Record(["split", "split_with_sizes"])
    with amanda.apply(everything, splits):
        names["views"](X)
        torch.split(X, 1)
    assert len(splits.analyzed) == 3
    assert everything.analyzed == splits.analyzed[2:]


def test_nothing_is_left_in_the_frames_that_are_looked_at() -> None:
    class Loss:
        pass

    held: list[int] = []
    layer, optimizer = nn.Linear(3, 3), None

    def closure() -> Tensor:
        mine = Loss()
        X.neg()
        held.append(sys.getrefcount(mine))
        return X.sum()

    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=1)
    layer.weight.grad, layer.bias.grad = torch.zeros(3, 3), torch.zeros(3)
    optimizer.step(closure)
    with amanda.apply(Record()):
        optimizer.step(closure)
    assert held[0] == held[-1]
