"""Profile: where the time goes, and the Chrome trace that shows it."""

import json
import statistics

import amanda
import pytest
import torch
from amanda_tools import Profile
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint
from toy import Toy


def by_id(times):
    return {place.id: time for place, time in times.items()}


class TestTimes:
    def test_add_up_by_forward_operator(self, toy):
        profile = Profile()
        with amanda.apply(profile):
            for _ in range(2):
                toy.forward("a/conv", 100)
                toy.backward("a/conv", 250)
            toy.forward("a/relu", 7)
        assert by_id(profile.forward) == {"a/conv": 200, "a/relu": 7}
        assert by_id(profile.backward) == {"a/conv": 500}
        assert profile.time == 707

    def test_of_many_executions_are_those_of_each_by_itself(self, toy):
        times = [(7 * n) % 1009 + 1 for n in range(2500)]
        profile = Profile()
        with amanda.apply(profile):
            for time in times:
                toy.forward("conv", time)
            (row,) = profile.rows()  # also while it runs
        assert (row.calls, row.forward) == (len(times), sum(times))
        assert (row.least, row.most) == (min(times), max(times))
        assert (row.mean, row.median) == (sum(times) / len(times), statistics.median(times))

    def test_are_those_of_the_model_also_where_forward_ran_before_the_scope(self, toy):
        toy.models = {id: Toy() for id in ("a/conv", "a/linear")}
        profile = Profile()
        with amanda.apply(profile):
            toy.backward("a/conv", 10)
            toy.forward("a/linear", 20)
            toy.backward("a/linear", 30)
        backward = {place.id: place.model for place in profile.backward}
        forward = {place.id: place.model for place in profile.forward}
        assert backward["a/linear"] == forward["a/linear"]
        assert backward["a/conv"] not in (None, forward["a/linear"])

    def test_count_an_operator_inside_another_one_once(self, toy):
        profile = Profile()
        with amanda.apply(profile):
            toy.backward("block", 100, inside=[lambda: toy.forward("conv", 40)])
        assert (by_id(profile.forward), by_id(profile.backward)) == ({"conv": 40}, {"block": 100})

    @pytest.mark.parametrize("reentrant", [False, True])
    def test_of_a_checkpoint_count_what_it_runs_again(self, reentrant):
        profile, layer = Profile(), nn.Linear(4, 4)
        x = torch.ones(2, 4, requires_grad=True)
        with amanda.apply(profile):
            checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
        assert {place.type for place in profile.backward} >= {"linear", "sum"}
        assert min(profile.forward.values()) > 0
        assert min(profile.backward.values()) > 0


class TestColumns:
    def test_shares_add_up_to_one(self, toy):
        profile = Profile()
        with amanda.apply(profile):
            toy.forward("conv", 100)
            toy.backward("relu", 300)
        columns = {column.title: by_id(column.values) for column in profile.columns()}
        assert columns == {
            "Forward": {"conv": 100},
            "Backward": {"relu": 300},
            "Share": {"conv": 0.25, "relu": 0.75},
            "Count": {"conv": 1},
        }

    def test_are_those_of_a_line_of_the_program(self, toy):
        profile = Profile()
        with amanda.apply(profile):
            toy.forward("a/conv", 7)
        assert [row.source for row in profile.rows()] == ["a.py:12"]

    def test_are_none_before_anything_ran(self):
        assert Profile().columns() == []

    def test_memory_is_there_where_the_device_tells(self, toy, monkeypatch):
        allocated = [0]
        monkeypatch.setattr(toy, "allocated", lambda device: sum(allocated))
        profile = Profile()
        with amanda.apply(profile):
            for kept in (100, 20, -30):
                toy.forward("conv", 1, inside=[lambda kept=kept: allocated.append(kept)])
        (memory,) = (column for column in profile.columns() if column.title == "Memory")
        assert by_id(memory.values) == {"conv": 90}


class Slice:
    """A slice of a Chrome trace, in nanoseconds, with those that are nested in it."""

    def __init__(self, event):
        self.name, self.category, self.args = event["name"], event["cat"], event["args"]
        self.start = round(event["ts"] * 1000)
        self.end = self.start + round(event["dur"] * 1000)
        self.inside = []

    def tree(self):
        return (self.name, [inner.tree() for inner in self.inside]) if self.inside else self.name


def rows_of(path):
    """The rows of a Chrome trace by name, nested as Perfetto nests them: by start, the longer one
    first, in the order of the file where both are the same."""
    events = json.loads(path.read_text())
    assert {event["ph"] for event in events} <= {"X", "M", "C", "s", "f"}
    assert len({event["pid"] for event in events}) == 1
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    rows = {}
    for number, name in names.items():
        slices = [Slice(e) for e in events if e["ph"] == "X" and e["tid"] == number]
        outermost, around = [], []
        for one in sorted(slices, key=lambda s: (s.start, -s.end)):
            while around and around[-1].end <= one.start:
                around.pop()
            assert not around or one.end <= around[-1].end, "slices overlap"
            (around[-1].inside if around else outermost).append(one)
            around.append(one)
        rows[name] = outermost
    assert len(rows) == len(names)
    return rows


def trees(path):
    return {name: [s.tree() for s in outermost] for name, outermost in rows_of(path).items()}


_MODULES = ["", "a", "a.b", "a.b.c", "a.d", "e"]


def _executions(level, inside):
    """Executions in any of some modules, forward and backward; none inside itself."""
    ids = [f"{module}/{type}{level}".lstrip("/") for module in _MODULES for type in "xy"]
    directions = st.sampled_from(["forward", "backward"])
    return st.lists(st.tuples(st.sampled_from(ids), directions, inside), max_size=6)


executions = _executions(0, _executions(1, _executions(2, st.just([]))))


class TestChromeTrace:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "profile.json"

    def test_has_a_row_for_each_direction(self, toy, path):
        with amanda.apply(Profile(path)):
            toy.forward("conv", 10)
            toy.forward("relu", 10)
            toy.backward("relu", 10)
        assert trees(path) == {"forward": ["conv", "relu"], "backward": ["reluBackward"]}

    def test_nests_operators_in_modules_as_the_scopes_do(self, toy, path):
        with amanda.apply(Profile(path)):
            for id in ("a.b/conv", "a.b/relu", "a.c/conv", "a/add", "d/linear", "sum"):
                toy.forward(id, 10)
        assert trees(path)["forward"] == [
            ("a", [("b", ["conv", "relu"]), ("c", ["conv"]), "add"]),
            ("d", ["linear"]),
            "sum",
        ]

    def test_a_module_lasts_from_its_first_operator_to_its_last(self, toy, path):
        with amanda.apply(Profile(path)):
            toy.now += 100
            toy.forward("a/conv", 10)
            toy.now += 100
            toy.forward("a/relu", 30)
            toy.now += 100
            toy.forward("sum", 1)
        module = rows_of(path)["forward"][0]
        assert (module.name, module.category, module.end - module.start) == ("a", "module", 140)

    def test_a_second_pass_begins_its_modules_anew(self, toy, path):
        with amanda.apply(Profile(path)):
            for _ in range(2):
                for id in ("a.b/conv", "a.b/relu"):
                    toy.forward(id, 10)
        assert trees(path)["forward"] == [("a", [("b", ["conv", "relu"])])] * 2

    def test_another_model_begins_modules_of_its_own(self, toy, path):
        models = toy.models = {id: Toy() for id in ("a/conv", "a/linear")}
        with amanda.apply(Profile(path)):
            for id in models:
                toy.forward(id, 10)
            for id in reversed(models):
                toy.backward(id, 10)
        assert trees(path) == {
            "forward": [("a", ["conv"]), ("a", ["linear"])],
            "backward": [("a", ["linearBackward"]), ("a", ["convBackward"])],
        }

    def test_operators_inside_others_are_nested_in_them(self, toy, path):
        def again():
            toy.backward("a.b/conv", 40)

        with amanda.apply(Profile(path)):
            toy.backward("block", 100, inside=[again])
        assert trees(path)["backward"] == [("blockBackward", [("a", [("b", ["convBackward"])])])]

    def test_operators_say_what_they_are(self, toy, path):
        with amanda.apply(Profile(path)):
            toy.forward("conv#2", 10, shape=(8, 3))
            toy.backward("conv#2", 10)
        rows = rows_of(path)
        assert rows["forward"][0].args == {
            "id": "conv#2",
            "scope": "",
            "iteration": 0,
            "operator": "conv#2",
            "source": ".py:12",
            "inputs": ["float32[8, 3]"],
            "outputs": ["float32[8, 3]"],
        }
        assert rows["backward"][0].args["inputs"] == ["float32[2, 3]", "none"]
        assert rows["backward"][0].args["operator"] == "conv#2"

    def test_is_complete_between_scopes(self, toy, path):
        profile = Profile(path)
        for count in (1, 2):
            with amanda.apply(profile):
                toy.forward("a/conv", 10)
            assert trees(path)["forward"] == [("a", ["conv"])] * count

    @settings(deadline=None, max_examples=50)
    @given(executions)
    def test_nests_whatever_runs_in_whatever_order(self, tmp_path_factory, runs):
        path = tmp_path_factory.getbasetemp() / "profile.json"
        toy = Toy()

        def run(runs):
            for id, direction, inside in runs:
                getattr(toy, direction)(id, 10, [lambda inside=inside: run(inside)])
                toy.now += 1

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("amanda_tools.executions.perf_counter_ns", lambda: toy.now)
            amanda.register_driver(toy)
            try:
                with amanda.apply(Profile(path)):
                    run(runs)
            finally:
                amanda.unregister_driver(toy)

        def operators(slices):
            return sum((s.category == "operator") + operators(s.inside) for s in slices)

        def executed(runs):
            return sum(1 + executed(inside) for _, _, inside in runs)

        assert sum(operators(row) for row in rows_of(path).values()) == executed(runs)

    def test_of_a_real_model(self, path):
        model = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
        with amanda.apply(Profile(path)):
            model(torch.ones(2, 4)).sum().backward()
        rows = trees(path)
        assert rows["forward"] == [
            "ones",
            ("0", ["linear"]),
            ("1", [("0", ["linear"]), ("1", ["relu"])]),
            "sum",
        ]
        assert [row if isinstance(row, str) else row[0] for row in rows["backward"]] == [
            "SumBackward0",
            "1",
            "0",
        ]


class TestOptimizer:
    @pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
    def test_is_shown_by_its_class(self, kind):
        model, profile = torch.nn.Linear(8, 8), Profile()
        optimizer = kind(model.parameters(), lr=0.1)
        with amanda.apply(profile):
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
        scopes = {place.scope for place in profile.forward}
        assert kind.__name__ in scopes

    def test_takes_the_step_that_it_takes_without(self):
        def trained(*tools):
            torch.manual_seed(0)
            model = torch.nn.Linear(8, 8)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            with amanda.apply(*tools):
                for _ in range(3):
                    model(torch.ones(2, 8)).square().sum().backward()
                    optimizer.step()
            return model.weight

        assert torch.equal(trained(Profile()), trained())
