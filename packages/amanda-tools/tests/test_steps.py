"""Steps and arrows in the Chrome trace of a profile."""

import inspect
import json

import amanda
import pytest
import torch
from amanda_tools import Profile
from rich.console import Console
from torch import nn
from torch.utils.checkpoint import checkpoint


@pytest.fixture
def path(tmp_path):
    return tmp_path / "profile.json"


def events(path):
    return json.loads(path.read_text())


def steps(path):
    """Name, start and end of the slices in the row of steps, in nanoseconds."""
    found = [e for e in events(path) if e.get("cat") == "step"]
    assert len({e["tid"] for e in found}) <= 1
    return [(e["name"], round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)) for e in found]


def arrows(path):
    """From which slice to which slice each arrow leads, by the ids of their operators."""
    slices = {
        (e["tid"], e["ts"]): e["args"]["id"] for e in events(path) if e.get("cat") == "operator"
    }
    ends = [e for e in events(path) if e["ph"] in "sf"]
    assert all(e.get("bp") == "e" for e in ends if e["ph"] == "f")
    by_id = {}
    for end in ends:
        by_id.setdefault(end["id"], {})[end["ph"]] = slices[end["tid"], end["ts"]]
    return [(pair["s"], pair["f"]) for pair in by_id.values()]


class TestSteps:
    def test_begin_with_the_operator_that_was_the_first_in_a_module(self, toy, path):
        with amanda.apply(Profile(path)):
            toy.forward("start", 5)
            for _ in range(3):
                toy.forward("a/conv", 10)
                toy.forward("a/relu", 10)
                toy.backward("a/relu", 10)
                toy.backward("a/conv", 10)
                toy.forward("clip", 1)  # for each of two gradients
                toy.forward("clip", 1)
                toy.now += 100
        assert steps(path) == [
            ("step 1", 5, 47),
            ("step 2", 147, 189),
            ("step 3", 289, 331),
        ]

    def test_have_loops_within_them(self, toy, path):
        with amanda.apply(Profile(path)):
            for _ in range(2):
                toy.forward("a/conv", 10)
                for _ in range(3):
                    toy.forward("a/loop/add", 10)
        assert steps(path) == [("step 1", 0, 40), ("step 2", 40, 80)]

    def test_of_inference_are_its_passes(self, toy, path):
        with amanda.apply(Profile(path)):
            for _ in range(2):
                toy.forward("a/conv", 10)
                toy.forward("a/relu", 10)
        assert steps(path) == [("step 1", 0, 20), ("step 2", 20, 40)]

    def test_are_not_begun_by_what_runs_again_within_a_backward(self, toy, path):
        with amanda.apply(Profile(path)):
            for _ in range(2):
                toy.forward("a/conv", 10)
                toy.forward("b/conv", 10)
                toy.backward("b/conv", 10, inside=[lambda: toy.forward("a/conv", 10)])
                toy.backward("a/conv", 10)
        assert steps(path) == [("step 1", 0, 50), ("step 2", 50, 100)]

    def test_are_no_row_where_there_is_one(self, toy, path):
        with amanda.apply(Profile(path)):
            toy.forward("a/conv", 10)
            toy.backward("a/conv", 10)
        assert steps(path) == []

    def test_go_on_in_another_scope(self, toy, path):
        profile = Profile(path)
        for _ in range(2):
            with amanda.apply(profile):
                toy.forward("a/conv", 10)
        assert [name for name, _, _ in steps(path)] == ["step 1", "step 2"]

    @pytest.mark.parametrize("again", [False, True])
    def test_of_training_have_the_optimizer_in_them(self, path, again):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with amanda.apply(Profile(path)):
            for _ in range(3):
                x = torch.ones(2, 4)
                y = checkpoint(model, x, use_reentrant=False) if again else model(x)
                y.sum().backward()
                optimizer.step()
        found = steps(path)
        assert [name for name, _, _ in found] == ["step 1", "step 2", "step 3"]
        updates = [e for e in events(path) if e.get("args", {}).get("scope") == "SGD"]
        updates = [e for e in updates if e.get("cat") == "operator"]
        assert len(updates) == 3 * 4
        for update in updates:
            assert any(
                s <= update["ts"] * 1000 + 1 and update["ts"] * 1000 <= e for _, s, e in found
            )


class TestArrows:
    def test_lead_from_each_forward_to_its_backward(self, toy, path):
        with amanda.apply(Profile(path)):
            for _ in range(2):
                toy.forward("a/conv", 10)
                toy.forward("a/relu", 10)
                toy.backward("a/relu", 10)
                toy.backward("a/conv", 10)
        assert arrows(path) == [("a/relu", "a/reluBackward"), ("a/conv", "a/convBackward")] * 2
        starts = [e["ts"] for e in events(path) if e["ph"] == "s"]
        assert len(set(starts)) == 4  # each execution has its own

    def test_of_several_forwards_go_back_from_the_latest(self, toy, path):
        with amanda.apply(Profile(path)):
            for _ in range(2):
                toy.forward("conv", 10)
            for _ in range(3):
                toy.backward("conv", 10)
        starts = [e["ts"] * 1000 for e in events(path) if e["ph"] == "s"]
        assert starts == [10, 0]  # and the third belongs to none that was seen

    def test_of_a_real_model_reach_all_its_backward_operators(self, path):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        with amanda.apply(Profile(path)):
            model(torch.ones(2, 4)).sum().backward()
        found = [arrow for arrow in arrows(path) if not arrow[1].endswith("/TBackward0")]
        assert [(f.partition("#")[0], b.rpartition("/")[2]) for f, b in found] == [
            *(("sum", "SumBackward0"), ("1/relu", "ReluBackward0"), ("0/linear", "AddmmBackward0"))
        ]
        assert all(backward.startswith(f"{forward}/") for forward, backward in found)


def test_the_slowest_are_shown_with_the_times_of_a_call(toy):
    profile = Profile()
    with amanda.apply(profile):
        for time in (1000, 3000):
            toy.forward("a/conv", time)
        toy.forward("a/relu", 10)
    table, *_, summary = profile.report()
    console = Console(width=100, no_color=True)
    with console.capture() as captured:
        console.print(table)
    lines = [line.split() for line in captured.get().splitlines() if "a/" in line]
    assert lines[0] == [
        *("a/conv", "4.00", "µs", "2", "2.00", "µs", "2.00", "µs", "1.00", "µs", "3.00", "µs"),
    ]
    assert lines[1][0] == "a/relu"
    assert summary.startswith("profile: 4.01 µs in 3 executions")


def test_the_slowest_are_shown_with_their_lines_of_the_program():
    profile = Profile()
    with amanda.apply(profile):
        torch.ones(3).exp()
        line = inspect.currentframe().f_lineno - 1
    _, sources, _ = profile.report()
    found = [source.split(": ") for source in sources.splitlines()]
    assert {id.partition("#")[0] for id, _ in found} == {"ones", "exp"}
    assert {source for _, source in found} == {f"{__file__}:{line}"}
