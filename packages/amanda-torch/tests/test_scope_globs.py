"""Tools that are restricted to modules by globs: what runs elsewhere costs nothing."""

import amanda
import pytest
import torch
from amanda.testing.probes import Observe, Watch
from amanda_torch.thread import intercepting
from torch import nn


class Probed(nn.Module):
    """Notes whether operators are intercepted where it runs."""

    def __init__(self, within: nn.Module | None = None) -> None:
        super().__init__()
        self.within = within
        self.intercepted: list[bool] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.intercepted.append(intercepting())
        return (x if self.within is None else self.within(x)).relu()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleList([Probed(nn.Linear(3, 3)), Probed()])
        self.decoder = Probed(Probed())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.encoder:
            x = layer(x)
        return self.decoder(x.abs()).neg()


X = torch.randn(2, 3)


def ids(**options: object) -> list[str]:
    tool = Watch(lambda ctx: None, **options)
    net = Net()
    with amanda.apply(tool):
        net(X)
        net(X)
    return tool.analyzed


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("encoder.*", ["encoder.0.within/linear", "encoder.0/relu", "encoder.1/relu"]),
        ("encoder", ["encoder.0.within/linear", "encoder.0/relu", "encoder.1/relu"]),
        ("*.within", ["encoder.0.within/linear", "decoder.within/relu"]),
        ("decoder", ["decoder.within/relu", "decoder/relu"]),
        ("", ["abs", "neg"]),
    ],
)
def test_operators_in_the_scopes_alone_are_seen(glob: str, expected: list[str]) -> None:
    assert ids(scopes=[glob]) == expected


def test_ids_are_those_of_a_tool_that_sees_everything() -> None:
    assert set(ids(scopes=["encoder.*", "decoder.*"])) <= set(ids())


def test_nothing_is_intercepted_in_modules_that_no_glob_can_select() -> None:
    net = Net()
    with amanda.apply(Watch(lambda ctx: None, scopes=["encoder.*"])):
        net(X)
    assert net.encoder[0].intercepted == [True]
    assert net.decoder.intercepted == [False]
    assert net.decoder.within.intercepted == [False]


def test_what_is_around_such_a_module_is_seen_again_behind_it() -> None:
    assert ids(scopes=[""])[-1] == "neg"


def test_an_exception_in_such_a_module_leaves_the_rest_seen() -> None:
    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError

    net = Net()
    net.decoder.within = Failing()
    tool = Watch(lambda ctx: None, scopes=["encoder.*"])
    with amanda.apply(tool):
        with pytest.raises(KeyError):
            net(X)
        net.decoder = Probed()
        net(X)
        assert intercepting()
    assert len(tool.analyzed) == 3


def test_another_tool_sees_such_a_module_all_the_same() -> None:
    net = Net()
    with amanda.apply(Watch(lambda ctx: None, scopes=["encoder.*"]), Observe()):
        net(X)
    assert net.decoder.intercepted == [True]


def test_a_scope_within_such_a_module_is_its_own() -> None:
    everything = Watch(lambda ctx: None)

    class Opening(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with amanda.apply(everything):
                x = x.abs()
            return x.neg()

    net = Net()
    net.decoder = Opening()
    tool = Watch(lambda ctx: None, scopes=["encoder.*"])
    with amanda.apply(tool):
        net(X)
    assert everything.analyzed == ["decoder/abs"]
    assert len(tool.analyzed) == 3


def test_a_glob_that_selects_no_module_is_warned_of() -> None:
    with pytest.warns(amanda.AmandaWarning, match=r"'0' of Watch, did you mean '\*\.0'"):
        ids(scopes=["0"])
