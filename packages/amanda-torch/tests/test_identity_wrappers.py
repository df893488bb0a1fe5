"""S4: what wraps a model is no place in it; the operators are those of the wrapped model."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import Record
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.optim.swa_utils import AveragedModel
from watching import ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Wrap = Callable[[nn.Module], nn.Module]

X = torch.randn(2, 3)


class Net(nn.Module):
    """Has operators of its own, a list of layers, and one that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.act(layer(x))
        return x.exp() + x.neg().exp()


IDS = ["layers.0/linear", "act/relu", "layers.1/linear", "act/relu#2", "exp", "neg", "exp#2", "add"]


class Delegating(nn.Module):
    """A wrapper as libraries have them: what it does not know itself it asks the wrapped one."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, *args: Any) -> Any:
        return self.inner(*args)


class Redirecting(Delegating):
    """A wrapper that knows the model both as it is and as it is to be called."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__(nn.DataParallel(inner))
        self.original = inner


class Odd(Delegating):
    """A wrapper that is false, of no length, and equal to whatever there is."""

    def __bool__(self) -> bool:
        raise TypeError("no truth value")

    def __len__(self) -> int:
        raise TypeError("no length")

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


WRAPS: dict[str, Wrap] = {
    "compiled": lambda model: torch.compile(model, backend="eager"),  # type: ignore[dict-item]
    "data parallel": nn.DataParallel,
    "averaged": AveragedModel,
    "checkpointed": lambda model: checkpoint_wrapper(
        model, checkpoint_impl=CheckpointImpl.NO_REENTRANT
    ),
    "delegating": Delegating,
    "redirecting": Redirecting,
    "odd": Odd,
    "twice": lambda model: nn.DataParallel(Delegating(model)),
    "compiled twice": lambda model: torch.compile(Delegating(model), backend="eager"),  # type: ignore[dict-item]
}
wraps = pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS.keys())


def inner_of(wrapper: nn.Module) -> nn.Module:
    return next(m for m in wrapper.modules() if isinstance(m, Net))


@wraps
@pytest.mark.parametrize("wrapped_first", [True, False])
def test_a_wrapped_model_runs_the_operators_of_the_model(wrap: Wrap, wrapped_first: bool) -> None:
    wrapper = wrap(Net())
    model = inner_of(wrapper)  # that of AveragedModel is a copy
    runs = [lambda: wrapper(X), lambda: model(X)]
    first, second = ids(*(runs if wrapped_first else runs[::-1]))
    assert first == second == IDS


@wraps
def test_a_part_that_is_wrapped_has_the_path_and_the_operators_of_the_part(wrap: Wrap) -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = wrap(Net())
            self.head = wrap(nn.Linear(3, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x))

    model = Whole()
    first, second = ids(lambda: model(X), lambda: model(X))
    plain = [f"body.{id}" if "." in id or id.startswith("act") else f"body/{id}" for id in IDS]
    assert first == second == [*plain, "head/linear"]


@wraps
def test_the_call_sites_of_a_wrapped_part_are_those_of_the_part(wrap: Wrap) -> None:
    """A branch shifts nothing, as without a wrapper."""

    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = wrap(nn.Linear(3, 3))
            self.deep = False

        def forward(self, x: Tensor) -> Tensor:
            x = self.fc(x)
            if self.deep:
                x = self.fc(x)
            return self.fc(x)

    model = Branching()
    shallow, _, deep, _, again = ids(
        lambda: model(X),
        lambda: setattr(model, "deep", True),
        lambda: model(X),
        lambda: setattr(model, "deep", False),
        lambda: model(X),
    )
    assert shallow == again == ["fc/linear", "fc/linear#2"]
    assert deep == ["fc/linear", "fc/linear#3", "fc/linear#2"]


@wraps
def test_a_wrapper_in_a_method_of_a_model_has_the_path_in_it(wrap: Wrap) -> None:
    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = wrap(nn.Sequential(nn.Linear(3, 3)))

        def step(self, x: Tensor) -> Tensor:
            return self.net(x).square()

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

    model = Trained()
    for order in (1, -1):
        stepped, called = ids(*[lambda: model.step(X), lambda: model(X)][::order])[::order]
        assert stepped == ["net.0/linear", "square"]
        assert called == ["net.0/linear"]


@wraps
def test_a_wrapped_model_computes_what_it_does_without_tools(wrap: Wrap) -> None:
    wrapper, tool = wrap(Net()), Record()
    expected = inner_of(wrapper)(X)
    with amanda.apply(tool):
        assert torch.equal(wrapper(X), expected)


@pytest.mark.parametrize("original", [True, False])
def test_a_sharded_model_has_the_ids_of_the_model(tmp_path: Path, original: bool) -> None:
    def sharded(module: nn.Module) -> nn.Module:
        return FullyShardedDataParallel(
            module, use_orig_params=original, device_id=torch.device("cpu")
        )

    gc.collect()  # the other model, a circle
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        layers = sharded(nn.Linear(3, 3)), nn.Tanh(), nn.Sequential(nn.Linear(3, 3))
        model, tool = sharded(nn.Sequential(*layers)), Record()
        with amanda.apply(tool):
            for _ in range(2):
                model(X).sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    assert tool.analyzed == ["0/linear", "1/tanh", "2.0/linear", "sum"]


def test_two_wrapped_models_share_no_operator() -> None:
    one, other = Delegating(Net()), Delegating(Net())
    a, b = ids(lambda: one(X), lambda: other(X))
    assert not set(a) & set(b)


def test_a_model_compiled_in_place_has_its_own_operators() -> None:
    model = Net()
    model.compile(backend="eager")
    assert ids(lambda: model(X)) == [IDS]


def test_a_module_that_has_one_part_is_no_wrapper() -> None:
    class Residual(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Tensor) -> Tensor:
            return x + self.module(x)

    model = nn.Sequential(Residual(nn.Linear(3, 3)))
    assert ids(lambda: model(X)) == [["0.module/linear", "0/add"]]


def test_an_empty_container_is_a_module_like_others() -> None:
    model = nn.Sequential(nn.Sequential(), nn.ReLU())
    assert ids(lambda: torch.relu(nn.Sequential()(X)), lambda: model(X)) == [["relu"], ["1/relu"]]


def test_a_module_without_a_truth_value_may_be_anywhere_in_a_model() -> None:
    model = nn.Sequential(Odd(nn.Sequential(nn.Linear(3, 3))), Odd(nn.Sequential(nn.ReLU())))

    def method(model: nn.Module) -> Tensor:
        return model[0](X).erf()  # type: ignore[operator]

    called, methods = ids(lambda: model(X), lambda: method(model))
    assert called == ["0.0/linear", "1.0/relu"]
    assert methods == ["0.0/linear", "erf"]


def test_a_wrapper_may_be_made_within_a_scope():
    model = nn.Linear(3, 2)
    ((*_, last),) = ids(lambda: AveragedModel(model)(X))
    assert last == "linear"
