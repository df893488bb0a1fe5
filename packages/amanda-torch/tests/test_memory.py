"""What is kept: nothing of a model, graph or tool that the program has let go of."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
import torch._dynamo  # checkpoints import it, which leaves circles behind
from amanda.testing.probes import Observe, Record, Watch
from amanda_torch import driver
from plain_models import perceptron
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from watching import everything, held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONTEXTS = driver.identity.contexts
X = torch.randn(2, 3)


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    """What is to be gone goes by itself: a graph that waits for the collector holds memory."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(references: list[weakref.ref[Any]]) -> list[Any]:
    return [reference() for reference in references if reference() is not None]


# Models


def train_one() -> weakref.ref[nn.Module]:
    model = perceptron(4)
    model(X).square().mean().backward()
    return weakref.ref(model)


def forward_only() -> weakref.ref[nn.Module]:
    model = perceptron(4)
    model(X)
    return weakref.ref(model)


SHARED = nn.ReLU()


def with_a_shared_part() -> weakref.ref[nn.Module]:
    model = nn.Sequential(nn.Linear(3, 3), SHARED)
    model(X).sum().backward()
    return weakref.ref(model)


def replacing_a_layer() -> weakref.ref[nn.Module]:
    MODEL[0] = nn.Linear(3, 4)
    MODEL(X)
    return weakref.ref(MODEL[0])


class Fresh(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        self.last = weakref.ref(softmax := nn.Softmax(-1))
        return nn.Linear(3, 3)(softmax(x))


FRESH = Fresh()


def modules_made_within_a_module() -> weakref.ref[nn.Module]:
    FRESH(X).sum().backward()
    return FRESH.last


def a_temporary_module() -> weakref.ref[nn.Module]:
    loss = nn.MSELoss()
    loss(X, X + 1)
    return weakref.ref(loss)


def a_method() -> weakref.ref[nn.Module]:
    class Encoder(nn.Linear):
        def encode(self, x: Tensor) -> Tensor:
            return functional.linear(x, self.weight)

    model = Encoder(3, 3)
    model.encode(X)
    return weakref.ref(model)


MODEL = perceptron(4)


@pytest.mark.parametrize(
    "once",
    [
        train_one,
        forward_only,
        with_a_shared_part,
        replacing_a_layer,
        modules_made_within_a_module,
        a_temporary_module,
    ],
)
def test_fifty_models_in_one_scope_keep_as_much_as_two(
    once: Callable[[], weakref.ref[nn.Module]],
) -> None:
    with amanda.apply(Observe()):
        models, kept = [], []
        for i in range(50):
            models.append(once())
            if i in (1, 49):
                kept.append(held())
        assert kept[0] == kept[1]
    assert len(alive(models)) <= 1  # that of the last call


def test_methods_of_a_model_keep_it_no_longer() -> None:
    with amanda.apply(*everything()):
        assert a_method()() is None


def test_the_cache_of_a_model_goes_with_it() -> None:
    with amanda.apply(*everything()):
        model = perceptron(4)
        before = held()
        model(X).sum().backward()
        used = held()
        del model
        after = held()
    outside = 2  # the sum, and its backward operator
    assert used["Operator"] > before["Operator"] + outside + 3
    assert after["Operator"] <= before["Operator"] + outside


def test_local_variables_live_no_longer() -> None:
    def step(layer: nn.Module) -> weakref.ref[Tensor]:
        hidden = layer(X)
        reference = weakref.ref(hidden)
        other = nn.Linear(4, 2)  # met for the first time: it is looked up who owns it
        other(hidden)
        del hidden
        assert reference() is None
        return reference

    with amanda.apply(*everything()):
        step(nn.Linear(3, 4))


# Graphs


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda x: functional.linear(x, torch.ones(2, 3)).relu(),
    "in place": lambda x: (x * 1).add_(1).relu_(),
    "view": lambda x: x.view(-1)[1:].reshape(5),
    "write through a view": lambda x: _written(x * 1),
    "many views": lambda x: x.unbind()[0] + x.tensor_split(2)[1][0],
    "used twice": lambda x: x * x + x,
    "shared with its input": lambda x: functional.dropout(x, 0.5, training=False).mul(2),
    "into a constant": lambda x: torch.zeros(2, 3).copy_(x),
    "lstm": lambda x: nn.LSTM(3, 4)(x)[0],
    "checkpoint": lambda x: checkpoint(lambda y: y.sin().relu(), x, use_reentrant=False),
    "reentrant": lambda x: checkpoint(lambda y: y.sin().relu(), x, use_reentrant=True),
}


def _written(x: Tensor) -> Tensor:
    x[0].mul_(2)
    x.view(-1)[1:3].copy_(X[0, :2])
    return x


programs = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())


@programs
@pytest.mark.parametrize("times", [1, 2], ids=["analyzed", "known"])
@pytest.mark.parametrize("backward", ["none", "backward", "retained", "twice differentiated"])
def test_a_graph_goes_with_the_last_tensor_of_it(
    program: Callable[[Tensor], Tensor], times: int, backward: str
) -> None:
    def step() -> list[weakref.ref[Any]]:
        x = X.clone().requires_grad_()
        y = program(x)
        loss = y.square().sum()
        references = [weakref.ref(x), weakref.ref(y), weakref.ref(loss)]
        if backward == "backward":
            loss.backward()
        elif backward == "retained":
            loss.backward(retain_graph=True)
        elif backward == "twice differentiated":
            if program is PROGRAMS["reentrant"]:
                return []  # PyTorch has no gradient of chosen inputs through it
            (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
            references.append(weakref.ref(gradient))
            if gradient.requires_grad:
                gradient.sum().backward()
        return references

    with amanda.apply(*everything()):
        for _ in range(times):
            references = step()
    assert alive(references) == []


@programs
def test_no_graph_is_kept_without_a_backward_pass(program: Callable[[Tensor], Tensor]) -> None:
    with amanda.apply(*everything()):
        x = X.clone().requires_grad_()
        references = [weakref.ref(program(x)) for _ in range(3)]
    assert alive(references) == []


def test_what_an_error_leaves_goes_with_it() -> None:
    def fails(ctx: amanda.OpContext) -> None:
        raise ValueError

    def step() -> list[weakref.ref[Any]]:
        x = X.clone().requires_grad_()
        y = x.sin().exp().sum()
        with contextlib.suppress(amanda.RoutineError):
            y.backward()
        return [weakref.ref(x), weakref.ref(y)]

    with amanda.apply(Watch(fails, "exp", gradient=True)):
        references = step()
    gc.collect()  # a traceback is a circle
    assert alive(references) == []


def test_steps_of_training_allocate_no_more_objects() -> None:
    model = perceptron(4)
    optimizer = torch.optim.Adam(model.parameters())

    def steps(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            model(X).square().mean().backward()
            optimizer.step()

    with amanda.apply(Observe()):
        counts = []
        for _ in range(3):
            steps(10)
            counts.append(len(gc.get_objects()))
    assert counts[2] - counts[1] < 10


# Tools


def test_a_tool_goes_after_its_scope() -> None:
    def scope() -> list[weakref.ref[Any]]:
        tools = everything()
        with amanda.apply(*tools):
            MODEL(X).sum().backward()
        return [weakref.ref(tool) for tool in tools]

    references = scope()
    gc.collect()  # a tool and its analysis routines are a circle
    assert alive(references) == []


def test_a_tool_goes_with_the_graphs_that_it_watched() -> None:
    def scope() -> tuple[weakref.ref[Any], Tensor]:
        tool = everything()[2]
        with amanda.apply(tool):
            return weakref.ref(tool), MODEL(X).sum()

    reference, loss = scope()
    loss.backward()
    del loss
    gc.collect()
    assert reference() is None


def test_what_a_routine_captures_goes_after_the_scope() -> None:
    def scope() -> weakref.ref[Tensor]:
        mask = torch.ones(4, 3)
        tool = amanda.Tool()
        tool.add_inst_for_op(
            lambda ctx: ctx.insert_before_op(lambda w: w * mask, inputs=[1]), ops=["linear"]
        )
        with amanda.apply(tool):
            nn.Linear(3, 4)(X)
        return weakref.ref(mask)

    reference = scope()
    gc.collect()
    assert reference() is None


def test_contexts_hold_what_routines_leave_no_longer_than_the_scope() -> None:
    class Note:
        pass

    references = []

    def analyze(ctx: amanda.OpContext) -> None:
        ctx["note"] = note = Note()
        references.append(weakref.ref(note))

    def scope() -> None:
        tool = amanda.Tool()
        tool.add_inst_for_op(analyze)
        with amanda.apply(tool):
            MODEL(X)
            X.sin()

    scope()
    gc.collect()
    assert references
    assert alive(references) == []


def test_a_closed_scope_leaves_operators_of_models_alone() -> None:
    with amanda.apply(Record()):
        MODEL(X)
        X.sin()
    gc.collect()
    assert "sin" not in CONTEXTS.numbering.operators
