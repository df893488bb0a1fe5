"""The summary of models, against numbers by hand."""

import csv
import json

import amanda
import pytest
import torch
from amanda_tools import Flops, Summary
from rich.console import Console
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(self.conv(x)).relu()


class Net(nn.Module):
    """Two heads share one weight, which is kept as it is."""

    def __init__(self):
        super().__init__()
        self.block = Block()
        self.first = nn.Linear(8, 10)
        self.one = nn.Linear(10, 8, bias=False).requires_grad_(False)
        self.other = nn.Linear(10, 8, bias=False)
        self.other.weight = self.one.weight

    def forward(self, x):
        h = self.first(self.block(x).mean((2, 3)))
        return self.one(h) + self.other(h)


def summary(run, **options):
    tool = Summary(**options)
    with amanda.apply(tool):
        run()
    return tool


@pytest.fixture(scope="module")
def of_net():
    model, x = Net(), torch.ones(2, 3, 5, 5)
    return summary(lambda: [model(x).sum().backward() for _ in range(2)])


def by_path(tool):
    return {row.path: row for row in tool.rows()}


def shown(tool, width):
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(tool.report())
    return [line.rstrip() for line in captured.get().splitlines() if line.strip()]


def test_modules_nest_in_the_order_in_which_they_run(of_net):
    assert [(row.path, row.type, row.depth) for row in of_net.rows()] == [
        ("", "Net", 0),
        ("block", "Block", 1),
        ("block.conv", "Conv2d", 2),
        ("block.norm", "BatchNorm2d", 2),
        ("first", "Linear", 1),
        ("one", "Linear", 1),
        ("other", "Linear", 1),
    ]


def test_shapes_are_those_that_go_in_and_come_out(of_net):
    rows = by_path(of_net)
    shapes = {path: (row.input_shape, row.output_shape) for path, row in rows.items()}
    assert shapes == {
        "": ([2, 3, 5, 5], [2, 8]),
        "block": ([2, 3, 5, 5], [2, 8, 3, 3]),
        "block.conv": ([2, 3, 5, 5], [2, 8, 3, 3]),
        "block.norm": ([2, 8, 3, 3], [2, 8, 3, 3]),
        "first": ([2, 8], [2, 10]),
        "one": ([2, 10], [2, 8]),
        "other": ([2, 10], [2, 8]),
    }


def test_a_parameter_counts_once_in_all_that_share_it(of_net):
    rows = by_path(of_net)
    conv, norm, first, shared = 3 * 8 * 9 + 8, 8 + 8, 8 * 10 + 10, 10 * 8
    assert rows["block"].params == conv + norm
    assert rows["one"].params == rows["other"].params == shared
    assert rows[""].params == conv + norm + first + shared
    assert rows[""].param_bytes == 4 * rows[""].params


def test_parameters_that_are_kept_as_they_are_are_told_apart(of_net):
    rows = by_path(of_net)
    assert rows["one"].trainable == 0
    assert rows[""].params - rows[""].trainable == 80
    assert of_net.totals()["trainable"] == rows[""].trainable


def test_flops_are_those_of_one_pass(of_net):
    rows = by_path(of_net)
    conv, first, head = 2 * 2 * 8 * 3 * 3 * 3 * 9, 2 * 2 * 8 * 10, 2 * 2 * 10 * 8
    assert rows["block.conv"].flops == conv
    assert rows[""].flops == conv + first + 2 * head
    assert rows[""].macs == rows[""].flops // 2


def test_memory_is_that_of_what_operators_give(of_net):
    assert by_path(of_net)["first"].output_bytes == 4 * 2 * 10


def test_a_module_that_is_called_twice_has_one_row():
    layer = nn.Linear(3, 3)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(self.layer(x))

    model = Twice()
    rows = by_path(summary(lambda: model(torch.ones(2, 3))))
    assert list(rows) == ["", "layer"]
    assert (rows["layer"].params, rows["layer"].flops) == (12, 2 * 2 * 2 * 3 * 3)


@pytest.fixture(scope="module")
def of_all():
    one = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    other, bare = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1)), nn.Linear(1, 5)
    return summary(lambda: [bare(other(one(torch.ones(2, 4)))) for _ in range(2)])


class TestSeveralModels:
    """Worked out by hand: 2 FLOPs for each multiply-add of a batch of two."""

    @staticmethod
    def numbers(tool):
        return [
            (row.model, row.path, row.type, row.params, row.flops, row.input_shape)
            for row in tool.rows()
        ]

    def test_with_equal_paths_are_a_tree_each(self, of_all):
        assert self.numbers(of_all) == [
            ("Sequential", "", "Sequential", 76, 256, [2, 4]),
            ("Sequential", "0", "Linear", 40, 128, [2, 4]),
            ("Sequential", "1", "ReLU", 0, 0, [2, 8]),
            ("Sequential", "2", "Linear", 36, 128, [2, 8]),
            ("Sequential#2", "", "Sequential", 19, 60, [2, 4]),
            ("Sequential#2", "0", "Linear", 15, 48, [2, 4]),
            ("Sequential#2", "1", "Linear", 4, 12, [2, 3]),
            ("Linear", "", "Linear", 10, 20, [2, 1]),
        ]

    def test_have_totals_together(self, of_all):
        assert of_all.totals()["params"] == 76 + 19 + 10
        assert of_all.totals()["flops"] == 256 + 60 + 20
        assert "parameters: 105 (105 trainable, 0 not)" in " ".join(shown(of_all, 200))

    def test_have_names_of_their_own_in_the_table(self, of_all):
        names = [line.split()[0] for line in shown(of_all, 200) if line.startswith(" S")]
        assert names == ["Sequential", "Sequential#2"]

    def test_share_a_parameter_that_counts_once_in_the_totals(self):
        one, other = nn.Sequential(nn.Linear(3, 3)), nn.Sequential(nn.Linear(3, 3))
        other[0].weight = one[0].weight
        tool = summary(lambda: other(one(torch.ones(2, 3))))
        assert [row.params for row in tool.rows()] == [12, 12, 12, 12]
        assert tool.totals()["params"] == 15

    def test_one_after_the_other_are_a_tree_each(self):
        def run():
            for width in (3, 5):
                nn.Sequential(nn.Linear(4, width))(torch.ones(2, 4))

        numbers = [(row.path, row.params, row.flops) for row in summary(run).rows()]
        assert numbers == [("", 15, 48), ("0", 15, 48), ("", 25, 80), ("0", 25, 80)]

    def test_are_not_the_loss_which_has_no_state(self):
        model, loss = nn.Sequential(nn.Linear(4, 3)), nn.MSELoss()
        rows = summary(lambda: loss(model(torch.ones(2, 4)), torch.zeros(2, 3))).rows()
        assert [(row.path, row.output_shape) for row in rows] == [("", [2, 3]), ("0", [2, 3])]

    def test_are_known_in_their_methods(self):
        class Coder(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.layer = nn.Linear(4, width)

            def encode(self, x):
                return self.layer(x.relu())

        coders = Coder(3), Coder(5)
        tool = summary(lambda: [coder.encode(torch.ones(2, 4)) for coder in coders])
        assert [(row.model, row.path, row.params) for row in tool.rows()] == [
            ("Coder", "", 15),
            ("Coder", "layer", 15),
            ("Coder#2", "", 25),
            ("Coder#2", "layer", 25),
        ]


def test_all_numbers_are_those_of_the_first_pass():
    model = nn.Sequential(nn.Linear(4, 3))
    rows = summary(lambda: [model(torch.ones(batch, 4)) for batch in (2, 5, 90)]).rows()
    for row in rows:
        assert (row.input_shape, row.output_shape, row.output_bytes) == ([2, 4], [2, 3], 24)
        assert (row.flops, row.macs) == (48, 24)


def test_flops_of_the_first_pass_are_its_own_where_others_counted_ahead_of_it():
    flops, tool, model = Flops(), Summary(), nn.Linear(4, 3)
    with amanda.apply(flops):
        model(torch.ones(10, 4))
    with amanda.apply(flops, tool):
        model(torch.ones(2, 4))
        model(torch.ones(7, 4))
    assert [row.flops for row in tool.rows()] == [48]
    assert flops.total().forward == 24 * (10 + 2 + 7)


def test_flops_of_what_is_made_of_others_are_theirs():
    attention = nn.MultiheadAttention(4, 2)
    x = torch.ones(3, 1, 4)
    once = summary(lambda: attention(x, x, x)).totals()["flops"]
    longer = torch.ones(9, 1, 4)
    both = summary(lambda: [attention(x, x, x), attention(longer, longer, longer)])
    assert once > 0
    assert both.totals()["flops"] == once


def test_training_shows_the_model_alone():
    model = nn.Sequential(nn.Linear(3, 4))
    optimizer = torch.optim.Adam(model.parameters())

    def train():
        for (x,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 3))):
            model(x).sum().backward()
            optimizer.step()

    assert list(by_path(summary(train))) == ["", "0"]


def test_another_scope_adds_nothing_to_what_was_seen():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    tool = summary(lambda: model(torch.ones(2, 3)))
    before = tool.rows()
    with amanda.apply(tool):
        model(torch.ones(2, 3))
        tool.invalidate()
        model(torch.ones(2, 3))
    assert tool.rows() == before


def test_without_modules_all_is_one_row():
    weight = nn.Parameter(torch.ones(3, 4))
    x = torch.ones(2, 3)
    (row,) = summary(lambda: (x @ weight).relu()).rows()
    assert (row.path, row.type, row.params, row.flops) == ("", "model", 12, 48)
    assert (row.input_shape, row.output_shape) == ([2, 3], [2, 4])


def test_of_nothing_says_so():
    assert summary(lambda: None).report() == "summary: no operator ran"


def test_keeps_no_model_alive():
    import weakref

    models = [nn.Linear(2, 2)]
    tool = summary(lambda: models[0](torch.ones(1, 2)))
    weight = weakref.ref(models[0].weight)
    models.clear()
    assert weight() is None
    assert tool.rows()[0].params == 6


class TestTable:
    def test_has_three_digits_or_on_request_all(self, of_net):
        model, x = Net(), torch.ones(2, 3, 5, 5)
        exact = summary(lambda: model(x), exact=True)
        (rounded,) = (line for line in shown(of_net, 120) if line.startswith(" Net"))
        (whole,) = (line for line in shown(exact, 120) if line.startswith(" Net"))
        flops = by_path(exact)[""].flops
        assert f"{flops:,}" in whole
        assert f"{flops:,}" not in rounded

    def test_ends_with_the_totals(self, of_net):
        assert "parameters: 410 (330 trainable, 80 not), 1.60 KiB" in " ".join(shown(of_net, 200))

    @pytest.mark.parametrize("width", [40, 60, 80, 120])
    def test_fits(self, of_net, width):
        lines = shown(of_net, width)
        assert max(map(len, lines)) <= width
        assert any("conv" in line for line in lines)

    def test_shows_as_many_levels_as_asked_for(self):
        model, x = Net(), torch.ones(2, 3, 5, 5)
        lines = shown(summary(lambda: model(x), depth=1), 120)
        assert any("block: Block" in line for line in lines)
        assert not any("Conv2d" in line for line in lines)


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_is_written_as_data(tmp_path, ending):
    path = tmp_path / f"summary.{ending}"
    model = nn.Sequential(nn.Linear(3, 4))
    tool = summary(lambda: model(torch.ones(2, 3)), out=path)
    if ending == "json":
        assert json.loads(path.read_text()) == tool.to_dict()
        assert tool.to_dict()["total"]["params"] == 16
    else:
        with path.open(newline="") as file:
            assert [line["params"] for line in csv.DictReader(file)] == ["16", "16"]


def test_stands_beside_flops_which_counts_for_both():
    flops, model = Flops(), nn.Sequential(nn.Linear(3, 4))
    tool = Summary()
    with amanda.apply(flops, tool):
        model(torch.ones(2, 3))
    assert flops.total().forward == tool.totals()["flops"] == 48


def test_the_command_shows_it_alone(tmp_path, in_process):
    (tmp_path / "model.py").write_text(
        "import torch\ntorch.nn.Sequential(torch.nn.Linear(3, 4))(torch.ones(2, 3))\n"
    )
    _, _, err = in_process(tmp_path, "run", "--tool", "amanda_tools:Summary:exact=yes", "model.py")
    assert "0: Linear" in err
    assert "flops:" not in err
