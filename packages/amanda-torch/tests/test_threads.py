"""Threads and processes: a scope covers the thread that entered it, and no other."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
import torch.distributed
import torch.distributed.fsdp
from amanda.testing.probes import Record, after
from plain_models import perceptron
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from watching import GradientWatch, everything

if TYPE_CHECKING:
    from collections.abc import Callable

    from forks import Interpreter

X = torch.randn(4, 3)


def network() -> nn.Module:
    torch.manual_seed(0)
    return perceptron()


def at_once(*functions: Callable[[], object]) -> None:
    """Run functions in threads that start together; what they raise is raised here."""
    barrier = threading.Barrier(len(functions))
    errors: list[BaseException] = []

    def run(function: Callable[[], object]) -> None:
        try:
            barrier.wait()
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def steps(model: nn.Module, *tools: amanda.Tool, count: int = 20) -> Callable[[], None]:
    def run() -> None:
        with amanda.apply(*tools) if tools else contextlib.nullcontext():
            for _ in range(count):
                torch.autograd.grad(model(X).square().sum(), list(model.parameters()))

    return run


# Threads


@pytest.mark.parametrize("models", [1, 2])
def test_two_scopes_at_once_see_their_own_thread(models: int) -> None:
    one = network()
    other = one if models == 1 else network()
    linears, relus, nothing = Record("linear"), Record("relu_"), Record([])
    at_once(steps(one, linears), steps(other, relus), steps(other), steps(one, nothing))
    assert len(linears.ran) == 2 * 20
    assert len(linears.analyzed) == 2
    assert len(relus.ran) == 20
    assert len(relus.analyzed) == 1
    assert nothing.ran == []


def test_all_views_at_once_on_one_model() -> None:
    model, watched = network(), [everything() for _ in range(3)]
    at_once(*(steps(model, *tools) for tools in watched))
    for forward, backward, gradient in watched:
        assert len(forward.analyzed) == len(set(forward.analyzed)) == 5
        assert len(forward.ran) == 5 * 20
        assert len(backward.ran) == len(backward.analyzed) * 20
        assert {len(grads) for grads in gradient.inputs.values()} == {20}


def test_threads_that_meet_an_operator_at_the_same_time_agree_on_it() -> None:
    for _ in range(10):
        model, tools = network(), [Record("linear") for _ in range(3)]
        at_once(*(steps(model, tool, count=1) for tool in tools))
        assert tools[0].ran == tools[1].ran == tools[2].ran


def test_a_substitution_in_one_thread_is_none_in_another() -> None:
    model = network()
    plain = model(X)
    results: dict[str, Tensor] = {}

    def zeroed() -> None:
        with amanda.apply(after("linear", torch.zeros_like)):
            for _ in range(50):
                results["zeroed"] = model(X)

    def untouched() -> None:
        for _ in range(50):
            results["untouched"] = model(X)

    at_once(zeroed, untouched)
    assert not results["zeroed"].any()
    assert torch.equal(results["untouched"], plain)


def test_a_thread_started_within_a_scope_sees_nothing() -> None:
    model, tool = network(), Record()
    with amanda.apply(tool):
        at_once(steps(model))
    assert tool.ran == []


def test_a_scope_that_ends_in_one_thread_stays_open_in_another() -> None:
    model, tool = network(), Record("linear")
    entered, left = threading.Event(), threading.Event()

    def short() -> None:
        with amanda.apply(Record()):
            entered.set()
        left.set()

    def long() -> None:
        with amanda.apply(tool):
            entered.wait()
            left.wait()
            model(X)

    at_once(short, long)
    assert len(tool.ran) == 2
    assert nn.Module.__call__ is nn.Module._wrapped_call_impl


def test_a_scope_that_wants_less_in_one_thread_takes_nothing_from_another() -> None:
    model, tool = network(), Record("linear")
    entered, narrowed, ran = threading.Event(), threading.Event(), threading.Event()

    def narrowing() -> None:
        with amanda.apply(Record()):
            entered.wait()
        with amanda.apply(Record("relu")):
            narrowed.set()
            ran.wait()
            model(X)

    def linear() -> None:
        with amanda.apply(tool):
            entered.set()
            narrowed.wait()
            model(X)
        ran.set()

    at_once(narrowing, linear)
    assert len(tool.ran) == 2


# Workers of a DataLoader


class Numbers(Dataset[Any]):
    """Tells what the tool that came along with the worker sees there."""

    def __init__(self, tool: Record) -> None:
        self.tool = tool

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        before = len(self.tool.ran)
        number = torch.full((2,), float(index)).neg().abs()
        return number, len(self.tool.ran) - before


def test_forked_workers_of_a_dataloader_are_not_instrumented() -> None:
    tool, model = Record(["linear", "neg", "abs"]), nn.Linear(2, 2)
    with amanda.apply(tool):
        loader = DataLoader(
            Numbers(tool), batch_size=2, num_workers=2, multiprocessing_context="fork"
        )
        batches = [(x, seen) for _ in range(2) for x, seen in loader if model(x) is not None]
    numbers = torch.cat([x[:, 0] for x, _ in batches])
    assert numbers.tolist() == [0.0, 1.0, 2.0, 3.0] * 2
    assert not any(seen.any() for _, seen in batches)
    assert tool.ran == ["linear"] * 4


def test_loading_data_is_not_the_models() -> None:
    tool, model = Record(), nn.Linear(2, 2)
    with amanda.apply(tool):
        data = torch.utils.data.TensorDataset(torch.randn(4, 2))
        for (x,) in DataLoader(data, batch_size=2, shuffle=True):
            model(x)
    assert set(tool.ran) <= {"randn", "linear", "select", "unbind"}


# Processes


def train_distributed(rank: int, folder: str) -> None:
    """One of two processes, with data of its own; saves the gradients and what was seen."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    torch.manual_seed(rank)
    x = torch.randn(4, 3)

    def replicated() -> nn.Module:
        return nn.parallel.DistributedDataParallel(network())

    def sharded() -> nn.Module:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
        return torch.distributed.fsdp.fully_shard(network(), mesh=mesh)

    def gradients(model: nn.Module, *tools: amanda.Tool) -> list[Tensor]:
        with amanda.apply(*tools):
            for _ in range(3):  # the first ones arrange the buckets anew
                model.zero_grad()
                model(x).square().sum().backward()
        grads = (parameter.grad for parameter in model.parameters())
        return [grad.to_local() if hasattr(grad, "to_local") else grad for grad in grads]

    results = {}
    for wrap in (replicated, sharded):
        plain = gradients(wrap())
        forward, backward, gradient = everything()
        results[wrap.__name__] = {
            "plain": plain,
            "gradients": gradients(wrap(), forward, backward, gradient),
            "forward": forward.analyzed,
            "backward": [id for _, id in backward.analyzed],
            "weight": next(g for id, g in gradient.inputs.items() if "0/linear" in id)[-1][1],
        }
    torch.save(results, f"{folder}/{rank}")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def distributed(
    tmp_path_factory: pytest.TempPathFactory, interpreter: Interpreter
) -> list[dict[str, Any]]:
    """What each of the two processes saved."""
    folder = tmp_path_factory.mktemp("distributed")
    program = "import test_threads; test_threads.train_distributed({}, {!r})"
    processes = [interpreter.start("-c", program.format(rank, str(folder))) for rank in (0, 1)]
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    return [torch.load(folder / str(rank)) for rank in (0, 1)]


@pytest.mark.parametrize("wrap", ["replicated", "sharded"])
def test_gradients_of_distributed_training_are_untouched(distributed: list[Any], wrap: str) -> None:
    for process in distributed:
        for one, other in zip(process[wrap]["gradients"], process[wrap]["plain"], strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("wrap", ["replicated", "sharded"])
def test_distributed_training_runs_the_models_operators_alone(
    distributed: list[Any], wrap: str
) -> None:
    layers = ["0/linear", "1/relu_", "2/linear"]
    for process in distributed:
        assert process[wrap]["forward"] == [*layers, "square", "sum"]
        assert "1/relu_/ReluBackward0" in process[wrap]["backward"]


def test_each_process_sees_the_gradients_of_its_own_data(distributed: list[Any]) -> None:
    one, other = (process["replicated"]["weight"] for process in distributed)
    assert not torch.equal(one, other)
    exchanged = distributed[0]["replicated"]["gradients"][0]
    assert torch.allclose((one + other) / 2, exchanged)


def test_a_backward_that_another_thread_runs_leaves_its_scope_alone() -> None:
    model, tool = network(), Record("linear")

    def run() -> None:
        with amanda.apply(tool):
            loss.backward()
            model(X)

    loss = model(X).sum()
    at_once(run)
    assert len(tool.ran) == 2


def test_gradient_tools_of_two_threads_see_their_own_backward() -> None:
    model, one, other = network(), GradientWatch(["linear"]), GradientWatch(["linear"])
    at_once(steps(model, one, count=20), steps(model, other, count=5))
    assert {len(grads) for grads in one.inputs.values()} == {20}
    assert {len(grads) for grads in other.inputs.values()} == {5}
