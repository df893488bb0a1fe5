"""Updates of optimizers: operators for tools that ask for their types, and for no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import Record
from torch import Tensor, nn, optim
from watching import everything

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[[Any], optim.Optimizer]

X = torch.randn(4, 3)
UPDATES = [
    "add_",
    "addcdiv_",
    "mul_",
    "lerp_",
    "_foreach_add_",
    "_foreach_addcdiv_",
    "_foreach_mul_",
    "_foreach_lerp_",
    "_fused_adam_",
    "_fused_sgd_",
]

optimizers = pytest.mark.parametrize(
    "make",
    [
        lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9, foreach=False),
        lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9, foreach=True),
        lambda ps: optim.SGD(ps, lr=0.1, fused=True),
        lambda ps: optim.Adam(ps, foreach=False),
        lambda ps: optim.Adam(ps, foreach=True, weight_decay=0.1),
        lambda ps: optim.Adam(ps, fused=True),
        lambda ps: optim.AdamW(ps, amsgrad=True, foreach=False),
        lambda ps: optim.RMSprop(ps, foreach=True),
    ],
    ids=[
        "SGD", "SGD foreach", "SGD fused", "Adam", "Adam foreach", "Adam fused", "AdamW", "RMSprop",
    ],
)  # fmt: skip


def train(make: Make, layers: int = 1, steps: int = 3, *tools: amanda.Tool) -> list[Tensor]:
    """The parameters after some steps."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(layers)))
    optimizer = make(model.parameters())
    with amanda.apply(*tools):
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=False)
            model(X).square().mean().backward()
            optimizer.step()
    return list(model.parameters())


@optimizers
def test_a_tool_over_all_operators_does_not_see_updates(make: Make) -> None:
    tool = Record()
    train(make, 1, 3, tool)
    assert set(tool.analyzed) == {"0/linear", "square", "mean"}


@optimizers
def test_a_tool_that_names_their_types_does(make: Make) -> None:
    tool = Record(UPDATES)
    train(make, 1, 3, tool)
    name = type(make([nn.Parameter(torch.zeros(1))])).__name__
    assert tool.analyzed
    assert {id.partition("/")[0] for id in tool.analyzed} == {name}


@optimizers
def test_there_are_no_more_with_more_parameters_or_steps(make: Make) -> None:
    few, many = Record(UPDATES), Record(UPDATES)
    train(make, 1, 3, few)
    train(make, 4, 6, many)
    assert set(many.analyzed) == set(few.analyzed)


@optimizers
def test_the_parameters_are_those_of_plain_training(make: Make) -> None:
    plain = train(make)
    for tools in (everything(), (Record(UPDATES),)):
        for one, other in zip(train(make, 1, 3, *tools), plain, strict=True):
            assert torch.equal(one, other)


def test_an_update_is_changed_where_it_is_asked_for() -> None:
    def freeze(parameter: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return parameter, torch.zeros_like(gradient)

    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: ctx.insert_before_op(freeze), ops=["add_"])
    torch.manual_seed(0)
    initial = list(nn.Linear(3, 3).parameters())
    trained = train(lambda ps: optim.SGD(ps, lr=0.1, foreach=False), 1, 3, tool)
    for one, other in zip(trained, initial, strict=True):
        assert torch.equal(one, other)


def test_a_users_own_optimizer_is_one_too() -> None:
    class SignSGD(optim.Optimizer):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {"lr": 0.1})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.sub_(descent(parameter.grad), alpha=group["lr"])

    def descent(gradient: Tensor) -> Tensor:
        return gradient.sign()

    all_operators, updates = Record(), Record(["sign", "sub_"])
    train(SignSGD, 2, 2, all_operators, updates)
    assert {"sign", "sub_"}.isdisjoint(all_operators.analyzed)
    assert updates.analyzed == ["SignSGD/sign", "SignSGD/sub_"]


def test_what_a_closure_runs_is_the_programs() -> None:
    model, tool = nn.Linear(3, 3), Record()
    optimizer = optim.LBFGS(model.parameters(), max_iter=3)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(X).square().sum()
        loss.backward()
        return loss

    with amanda.apply(tool):
        optimizer.step(closure)
    assert {id.partition("#")[0] for id in tool.analyzed} == {"linear", "square", "sum"}


def test_clipping_gradients_is_the_programs() -> None:
    model, tool = nn.Linear(3, 3), Record(["linalg_vector_norm", "_foreach_norm"])
    model(X).sum().backward()
    with amanda.apply(tool):
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert tool.analyzed
