"""S4: the path of an operator is that through which its module was called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import amanda
import torch
from amanda.testing.probes import Record
from torch import Tensor, nn
from watching import ids

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.randn(2, 3)


class Side(nn.Module):
    def __init__(self, core: nn.Module) -> None:
        super().__init__()
        self.core = core

    def forward(self, x: Tensor) -> Tensor:
        return self.core(x).neg()


class Sides(nn.Module):
    def __init__(self, make: Callable[[nn.Module], nn.Module] = Side) -> None:
        super().__init__()
        core = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.left, self.right = make(core), make(core)

    def forward(self, x: Tensor) -> Tensor:
        return self.right(self.left(x))


def side(name: str) -> list[str]:
    return [f"{name}.core.0/linear", f"{name}.core.1/relu", f"{name}/neg"]


def test_a_module_shared_by_two_parents_is_booked_under_each() -> None:
    model = Sides()
    assert ids(lambda: model(X), lambda: model(X)) == [side("left") + side("right")] * 2


def test_so_is_one_that_is_shared_further_down() -> None:
    model = Sides(lambda core: nn.Sequential(Side(core), nn.Tanh()))
    (found,) = ids(lambda: model(X))
    parts = [side("left.0"), ["left.1/tanh"], side("right.0"), ["right.1/tanh"]]
    assert found == [id for part in parts for id in part]


def test_sharing_within_what_is_shared_multiplies_the_paths() -> None:
    leaf = nn.Linear(3, 3)
    middle = Sides(lambda _: Side(leaf))
    model = nn.Sequential(middle, middle)
    (found,) = ids(lambda: model(X))
    assert [id for id in found if "linear" in id] == [
        "0.left.core/linear",
        "0.right.core/linear",
        "0.left.core/linear#2",
        "0.right.core/linear#2",
    ]


def test_parts_called_from_a_method_have_the_path_through_which_they_are_called() -> None:
    class Whole(Sides):
        def halves(self, x: Tensor) -> None:
            self.right(x)
            self.left(x)

    model = Whole()
    called, halves = ids(lambda: model(X), lambda: model.halves(X))
    assert halves == side("right") + side("left")
    assert sorted(called) == sorted(halves)


def test_which_side_runs_first_makes_no_difference() -> None:
    model = Sides()
    right, both = ids(lambda: right_alone(model), lambda: model(X))
    assert right == side("right")
    assert both == side("left") + side("right")


def right_alone(model: Sides) -> Tensor:
    return model.right(X)


def test_a_tied_layer_has_the_nearest_path_of_the_module_that_calls_it() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
            self.head = self.layers[0]

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return self.head(x)

    model = Tied()
    assert ids(lambda: model(X)) == [["head/linear", "layers.1/linear", "head/linear#2"]]


def test_a_module_that_its_caller_does_not_have_is_named_by_its_model() -> None:
    class Borrowing(nn.Module):
        def __init__(self, lender: nn.Module) -> None:
            super().__init__()
            self.borrowed = [lender]

        def forward(self, x: Tensor) -> Tensor:
            return self.borrowed[0](x)

    layer = nn.Linear(3, 3)
    model = nn.Sequential(layer, Borrowing(layer))
    assert ids(lambda: model(X)) == [["0/linear", "0/linear#2"]]


def test_a_module_shared_by_two_models_has_the_path_in_each() -> None:
    shared = nn.Sequential(nn.Linear(3, 3))
    one, other = Side(shared), nn.Sequential(nn.Tanh(), shared)
    for _ in range(2):
        a, b = ids(lambda: one(X), lambda: other(X))
        assert a == ["core.0/linear", "neg"]
        assert b == ["0/tanh", "1.0/linear"]


def test_a_part_that_ran_by_itself_has_its_path_when_the_model_runs() -> None:
    model = Sides()
    alone, within, again = ids(lambda: model.left(X), lambda: model(X), lambda: model.left(X))
    assert alone == again == ["core.0/linear", "core.1/relu", "neg"]
    assert within == side("left") + side("right")


def test_a_part_that_runs_by_itself_is_named_as_if_the_model_had_not_run() -> None:
    model = Sides()
    within, alone = ids(lambda: model(X), lambda: model.left(X))
    assert within == side("left") + side("right")
    assert alone == ["core.0/linear", "core.1/relu", "neg"]


class Growing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.times = nn.Linear(3, 3), 1

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = self.fc(x).relu()
        return x


def test_what_another_model_runs_does_not_shift_the_ids_of_a_model() -> None:
    one, other = Growing(), Growing()
    first, _, _, second = ids(
        lambda: one(X), lambda: other(X), lambda: setattr(one, "times", 2), lambda: one(X)
    )
    assert first == ["fc/linear", "relu"]
    assert second == [*first, "fc/linear#2", "relu#2"]


def test_of_two_models_one_has_its_ids_marked() -> None:
    one, other = Growing(), Growing()
    one.times = other.times = 2
    plain, marked = ids(lambda: one(X), lambda: other(X))
    assert plain == ["fc/linear", "relu", "fc/linear#2", "relu#2"]
    assert marked == ["fc/linear#1@2", "relu#1@2", "fc/linear#2@2", "relu#2@2"]


def test_the_mark_of_a_model_that_is_gone_is_free_again() -> None:
    keeps = Growing()
    with amanda.apply(tool := Record(["linear", "relu"])):
        keeps(X)
        for _ in range(3):
            Growing()(X)
    assert tool.ran == ["fc/linear", "relu", *["fc/linear#1@2", "relu#1@2"] * 3]


def test_layers_added_while_a_model_runs_have_their_path() -> None:
    class Building(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList()

        def forward(self, x: Tensor) -> Tensor:
            while len(self.layers) < 3:
                self.layers.append(nn.ReLU())
                x = self.layers[-1](x)
            return x

    model = Building()
    assert ids(lambda: model(X)) == [[f"layers.{i}/relu" for i in range(3)]]


def test_layers_added_between_runs_have_their_path() -> None:
    model = nn.Sequential(nn.ReLU())
    found = ids(
        lambda: model(X),
        lambda: model.append(nn.Tanh()),
        lambda: model(X),
        lambda: model.insert(0, nn.Sigmoid()),
        lambda: model(X),
    )
    assert found[2] == ["0/relu", "1/tanh"]
    assert found[4] == ["0/sigmoid", "0/relu", "1/tanh"]  # known ones keep their ids


def test_a_dictionary_of_modules_and_a_nested_list_have_their_paths() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            rows = (nn.ModuleList(nn.ReLU() for _ in range(2)) for _ in range(2))
            self.grid = nn.ModuleDict({"a": nn.ModuleList(rows)})

        def forward(self, x: Tensor) -> Tensor:
            for row in self.grid["a"]:  # type: ignore[union-attr]
                for cell in row:
                    x = cell(x)
            return x

    model = Named()
    expected = [f"grid.a.{i}.{j}/relu" for i in range(2) for j in range(2)]
    assert ids(lambda: model(X)) == [expected]
