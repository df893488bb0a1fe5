"""S4: an operator is a place in a model, whatever runs there, and however often."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import amanda
import pytest
import torch
from amanda.testing.probes import Record
from torch import Tensor, nn
from torch.nn import functional
from watching import ids

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from forks import Interpreter

X = torch.randn(2, 3)


# What ids look like


def test_an_id_is_scope_and_type() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 3)))
    assert ids(lambda: model(X)) == [["0/linear", "1.0/relu", "1.1/linear"]]


def test_a_second_one_of_a_type_is_numbered() -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.relu() + x.neg().relu()

    model = nn.Sequential(Twice())
    assert ids(lambda: model(X)) == [["0/relu", "0/neg", "0/relu#2", "0/add"]]


def test_outside_of_modules_an_id_is_the_type() -> None:
    assert ids(lambda: X.relu() + X.sin()) == [["relu", "sin", "add"]]


def test_an_operator_of_the_context_is_equal_to_another_of_the_same_place() -> None:
    seen: list[amanda.Operator] = []
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: seen.append(ctx.op))
    model = nn.Sequential(nn.Linear(3, 3))
    with amanda.apply(tool):
        model(X)
        tool.invalidate()
        model(X)
    one, other = seen
    assert one == other
    assert (one.type, one.name, one.scope, one.backend) == ("linear", "linear", "0", "torch")


# What changes nothing


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(3)
        self.fc = nn.Linear(3, 3)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(functional.gelu(self.fc(self.norm(x))))


@pytest.mark.parametrize(
    "change",
    [
        lambda model: None,
        lambda model: model.train(not model.training),
        lambda model: model.double().float(),
        lambda model: model.to(memory_format=torch.preserve_format),
        lambda model: model.requires_grad_(False),
        lambda model: model.load_state_dict(copy.deepcopy(model.state_dict())),
        lambda model: model[0].register_forward_hook(lambda *_: None),
        lambda model: model[0].fc.register_forward_pre_hook(lambda *_: None),
        lambda model: model.register_forward_hook(lambda *_, **__: None, with_kwargs=True),
        lambda model: model[1].fc.register_full_backward_hook(lambda *_: None),
        lambda model: model[1].register_full_backward_pre_hook(lambda *_: None),
        lambda model: setattr(model[0].fc, "weight", nn.Parameter(torch.zeros(3, 3))),
        lambda model: copy.deepcopy(model)(X),
    ],
    ids=[
        "nothing", "mode", "dtype and back", "layout", "frozen", "loaded", "hook", "pre-hook",
        "hook with kwargs", "backward hook", "backward pre-hook", "parameter", "copy",
    ],
)  # fmt: skip
def test_ids_stay_when_the_model_is_changed(change: Callable[[nn.Module], object]) -> None:
    model = nn.Sequential(Block(), Block())
    before, _, after = ids(lambda: model(X), lambda: change(model), lambda: model(X))
    assert len(set(before)) == 10
    assert after == before


def test_hooks_on_all_modules_change_nothing() -> None:
    model = nn.Sequential(Block(), Block())
    hooks = []
    before, _, after = ids(
        lambda: model(X),
        lambda: hooks.append(nn.modules.module.register_module_forward_hook(lambda *_: None)),
        lambda: model(X),
    )
    hooks[0].remove()
    assert after == before


def test_the_dtype_of_the_input_changes_nothing() -> None:
    model = nn.Sequential(Block(), Block())
    found = []
    tool = Record(["linear", "layer_norm", "gelu"])
    with amanda.apply(tool):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            start = len(tool.ran)
            model.to(dtype)(X.to(dtype))
            found.append(tool.ran[start:])
    assert found[0] == found[1] == found[2]


def test_the_line_from_which_a_model_is_called_changes_nothing() -> None:
    model = nn.Sequential(Block())

    def elsewhere() -> None:
        model(X)

    assert len({tuple(run) for run in ids(lambda: model(X), elsewhere, lambda: model(X))}) == 1


def test_another_scope_changes_nothing() -> None:
    model = nn.Sequential(Block(), Block())
    assert ids(lambda: model(X)) == ids(lambda: model(X))


def test_autograd_changes_nothing() -> None:
    model = nn.Sequential(Block(), Block())

    def without() -> None:
        with torch.no_grad():
            model(X)

    with_gradients, without_gradients = ids(lambda: model(X), without)
    assert with_gradients == without_gradients


# Several runs of one module


def test_a_module_called_twice_is_two_operators() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.fc(x))

    model = Twice()
    assert ids(lambda: model(X), lambda: model(X)) == [["fc/linear", "fc/linear#2"]] * 2


def test_a_branch_does_not_shift_the_ids_of_others() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act, self.step = nn.ReLU(), 0

        def forward(self, x: Tensor) -> Tensor:
            x = self.act(x)
            self.step += 1
            if self.step % 2:
                x = self.act(x) + 1
            return self.act(x) * 2

    model = Branching()
    one, two, three, four = ids(*[lambda: model(X)] * 4)
    assert one == three
    assert two == four
    assert [id for id in one if id in two] == two


def test_a_loop_over_layers() -> None:
    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
            self.skipped: int | None = None

        def forward(self, x: Tensor) -> Tensor:
            for i, layer in enumerate(self.layers):
                if i != self.skipped:
                    x = layer(x)
            return x

    model = Stack()
    every, _, some = ids(lambda: model(X), lambda: setattr(model, "skipped", 1), lambda: model(X))
    assert every == ["layers.0/linear", "layers.1/linear", "layers.2/linear"]
    assert some == ["layers.0/linear", "layers.2/linear"]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 3)

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        h = torch.zeros(2, 3)
        for x in xs:
            h = self.cell(x, h)
        return h


def test_a_loop_over_time_within_a_module_is_unrolled() -> None:
    model = Recurrent()
    three, two, four = ids(lambda: model([X] * 3), lambda: model([X] * 2), lambda: model([X] * 4))
    assert three == ["zeros", "cell/gru_cell", "cell/gru_cell#2", "cell/gru_cell#3"]
    assert two == three[:3]
    assert four == [*three, "cell/gru_cell#4"]


def test_an_endless_loop_does_not_make_the_cache_grow_without_bound() -> None:
    class Many(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(5000):
                x = x.neg()
            return x

    (found,) = ids(lambda: Many()(X))
    assert len(found) == 5000
    assert len(set(found)) <= 4096


def test_a_loop_outside_of_modules_is_one_place() -> None:
    cell = nn.GRUCell(3, 3)

    def loop() -> None:
        h = torch.zeros(2, 3)
        for _ in range(4):
            h = cell(X, h)

    (found,) = ids(loop)
    assert found == ["zeros", "gru_cell", "gru_cell", "gru_cell", "gru_cell"]


def test_recursion_ends() -> None:
    class Deep(nn.Module):
        def forward(self, x: Tensor, depth: int) -> Tensor:
            return self.down(x, depth)

        def down(self, x: Tensor, depth: int) -> Tensor:
            return x.neg() if depth == 0 else self.down(x, depth - 1)

    model = Deep()
    first, second = ids(lambda: model(X, 100), lambda: model(X, 200))
    assert len(first) == len(second) == 1


# Several modules


def test_two_models_share_no_operator() -> None:
    one, other = nn.Sequential(Block()), nn.Sequential(Block())
    a, b, c = ids(lambda: one(X), lambda: other(X), lambda: one(X))
    assert not set(a) & set(b)
    assert a == c


def test_a_copy_of_a_model_shares_no_operator_with_it() -> None:
    model = nn.Sequential(Block())
    found = ids(lambda: model(X))[0]
    twin = copy.deepcopy(model)
    ours, theirs = ids(lambda: model(X), lambda: twin(X))
    assert ours == found
    assert not set(ours) & set(theirs)


def test_a_module_shared_by_two_models_is_an_operator_in_each() -> None:
    shared = nn.Linear(3, 3)
    one, other = nn.Sequential(shared, nn.ReLU()), nn.Sequential(nn.Tanh(), shared)
    a, b, c = ids(lambda: one(X), lambda: other(X), lambda: one(X))
    assert a == c == ["0/linear", "1/relu"]
    assert b == ["0/tanh", "1/linear"]


def test_a_module_registered_twice_is_named_by_its_first_place() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Linear(3, 3)
            self.decoder = self.encoder

        def forward(self, x: Tensor) -> Tensor:
            return self.decoder(self.encoder(x))

    model = Tied()
    assert ids(lambda: model(X)) == [["encoder/linear", "encoder/linear#2"]]


def test_modules_in_a_plain_list_are_named_by_where_they_are_met() -> None:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(3, 3), nn.Linear(3, 3)]

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    model = nn.Sequential(Hidden())
    first, second = ids(lambda: model(X), lambda: model(X))
    assert first == second == ["0.Linear/linear", "0.Linear/linear#2"]


def test_a_module_that_is_made_for_each_call_is_one_operator() -> None:
    class Fresh(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.Softmax(dim=-1)(x) + nn.Softmax(dim=0)(x)

    model, kept = Fresh(), []

    def step() -> None:
        kept.append(model(X.clone().requires_grad_()))  # and what keeps it alive

    first, second, third = ids(step, step, step)
    assert first[1:] == ["Softmax/softmax", "Softmax/softmax#2", "add"]
    assert second == first
    assert third == first


def test_a_loss_that_is_made_for_each_step_is_one_operator() -> None:
    def step() -> Tensor:
        return nn.MSELoss()(X, X + 1)

    first, second, third = ids(step, step, step)
    assert first == second == third == ["add", "broadcast_tensors", "mse_loss"]


def test_a_replaced_module_is_another_operator() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    analyzed = []
    tool = Record(["linear", "relu"])
    with amanda.apply(tool):
        for _ in range(3):
            model(X)
            analyzed.append(list(tool.analyzed))
            with amanda.disabled():
                model[0] = nn.Linear(3, 3)
    assert analyzed[0] == ["0/linear", "1/relu"]
    assert analyzed[1] == [*analyzed[0], "0/linear"]  # the former one is gone, and its id free
    assert analyzed[2] == [*analyzed[1], "0/linear"]


def test_a_part_called_by_itself_is_the_same_as_within_the_model() -> None:
    for order in (1, -1):
        model = nn.Sequential(Block(), Block())
        runs = [lambda m=model: m[1](X), lambda m=model: m(X)][::order]
        alone, within = ids(*runs)[::order]
        assert alone == within[5:]


# Two processes


def run_of_all_kinds(tell: Callable[[str], object]) -> None:
    """Train, and run what keeps its own order; tell the ids of all that runs."""
    from test_identity_outside import Encoder

    with amanda.apply(tool := Record()):
        model = nn.Sequential(Block(), Block(), nn.LSTM(3, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            model(X)[0].square().mean().backward()
            optimizer.step()
        Recurrent()([X] * 3)
        encoder = Encoder()
        encoder.generate(X, 3)
        encoder.encode(X)
    for id in tool.ran:
        tell(id)


def test_ids_are_the_same_in_another_process(interpreter: Interpreter) -> None:
    here, program = [], f"import test_identity; test_identity.{run_of_all_kinds.__name__}(print)"
    run_of_all_kinds(here.append)
    assert "1.fc/linear" in here
    assert interpreter.run("-c", program, check=True).stdout.splitlines() == here


def test_places_of_one_type_are_told_apart_in_whatever_order_they_are_passed() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor, order: Sequence[int]) -> Tensor:
            for place in order:
                if place == 0:
                    x = x.relu()
                elif place == 1:
                    x = torch.relu(x)
                else:
                    x = functional.relu(x)
            return x

    model, seen = Model(), []
    tool = amanda.Tool()
    orders = [[0, 0, 1, 2], [2, 1, 1, 0, 2, 0], [1, 0, 1, 0, 0, 2, 2, 1], [0, 0, 1, 2]]

    def look(ctx: amanda.OpContext) -> None:
        id = ctx.op_id
        ctx.insert_before_op(lambda x: seen.append(id))

    tool.add_inst_for_op(look, ops=["relu"])
    place_of: dict[str, int] = {}
    with amanda.apply(tool):
        for order in orders:
            seen.clear()
            model(X, order)
            passed = [place_of.setdefault(*each) for each in zip(seen, order, strict=True)]
            assert passed == order
            assert len(set(seen)) == len(order)
