"""Flops: rows, sums, columns and formulas of users."""

import gc
import json
import weakref
from math import prod

import amanda
import pytest
import torch
import torch._dynamo  # compilers and optimizers import it, whose objects slow down every collection
import torch.nn.functional as F  # noqa: N812
from amanda_tools.flops import Flops, OperatorFlops, formula
from amanda_tools.flops.registry import tables
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 3, bias=False)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.head = nn.Linear(3, 5)

    def forward(self, x):
        return self.head(self.block(x))


def counted(run):
    flops = Flops()
    with amanda.apply(flops):
        run()
    return flops


@pytest.fixture
def operator():
    """A custom operator that nobody knows, with a gradient; its formulas are forgotten again."""

    @torch.library.custom_op("flops_test::square", mutates_args=())
    def square(x: torch.Tensor) -> torch.Tensor:
        return x * x

    square.register_autograd(lambda ctx, grad: grad, setup_context=lambda ctx, inputs, output: None)
    yield square
    tables()["torch"].formulas.pop("flops_test::square", None)


class TestRows:
    def test_tell_of_each_operator_what_it_did(self):
        model = Model()
        flops = counted(lambda: [model(torch.ones(2, 3)).sum().backward() for _ in range(3)])
        row = next(row for row in flops.rows() if row.place.id == "block.first/linear")
        assert row == OperatorFlops(
            *("block.first/linear", "linear", "block.first"),
            calls=3,
            forward=3 * 2 * 2 * 3 * 4,
            backward=3 * 2 * 2 * 3 * 4,  # the input needs no gradient
            macs=3 * 2 * 3 * 4,
            params=3 * 4 + 4,
            bytes=3 * 4 * (2 * 3 + 4 * 3 + 4 + 2 * 4),
        )

    def test_come_in_the_order_in_which_operators_first_ran(self):
        model = Model()
        ids = [row.place.id for row in counted(lambda: model(torch.ones(2, 3))).rows()]
        assert [id for id in ids if "/" in id] == [
            "block.first/linear", "block/relu", "block.second/linear", "head/linear",
        ]  # fmt: skip

    def test_add_up_executions_of_different_shapes(self):
        layer = nn.Linear(3, 4)
        flops = counted(lambda: [layer(torch.ones(rows, 3)) for rows in (2, 7, 2, 1)])
        (row,) = (row for row in flops.rows() if row.place.type == "linear")
        assert (row.calls, row.forward) == (4, 12 * 2 * 3 * 4)

    def test_are_snapshots(self):
        flops, layer = Flops(), nn.Linear(3, 4)
        with amanda.apply(flops):
            layer(torch.ones(2, 3))
            before = flops.rows()
            layer(torch.ones(2, 3))
        assert [row.calls for row in before if row.place.type == "linear"] == [1]

    def test_go_on_in_another_scope(self):
        flops, layer = Flops(), nn.Linear(3, 4)
        for _ in range(2):
            with amanda.apply(flops):
                layer(torch.ones(2, 3))
        (row,) = (row for row in flops.rows() if row.place.type == "linear")
        assert (row.calls, row.forward, row.params) == (2, 2 * 48, 16)

    def test_of_tools_that_come_and_go_within_one_scope_are_their_own(self):
        layer, outer = nn.Linear(3, 4), Flops()
        with amanda.apply(outer):
            for _ in range(20):
                flops = Flops()
                with amanda.apply(flops):
                    layer(torch.ones(2, 3)).sum().backward()
                assert (flops.total().forward, flops.total().backward) == (48, 48)
                del flops
                gc.collect()
        assert (outer.total().forward, outer.total().backward) == (20 * 48, 20 * 48)

    def test_are_the_same_without_the_cache(self):
        model = Model()

        def run():
            for _ in range(2):
                model(torch.ones(2, 3)).sum().backward()

        flops = Flops()
        with amanda.apply(flops), amanda.cache_disabled():
            run()
        assert flops.total() == counted(run).total()

    def test_survive_an_operator_that_fails(self):
        flops, layer = Flops(), nn.Linear(3, 4)
        with amanda.apply(flops):
            with pytest.raises(RuntimeError):
                layer(torch.ones(2, 5))
            layer(torch.ones(2, 3))
        assert flops.total().forward == 48
        assert flops.by_type()["linear"].calls == 1


class TestUncounted:
    def test_lists_operators_that_have_no_formula(self, operator):
        flops = counted(lambda: operator(F.gelu(torch.ones(3, 3)) + 1))
        assert flops.total().uncounted == {"gelu": 1, "add": 1, "flops_test::square": 1}
        assert flops.total().flops == 0

    def test_leaves_out_what_only_moves_data(self):
        x = torch.ones(4, 6)
        flops = counted(lambda: torch.cat([x.reshape(6, 4).t(), x])[1:, 0].clone())
        assert flops.total().uncounted == {}

    def test_is_told_at_the_end(self):
        flops = counted(lambda: F.linear(F.gelu(F.gelu(torch.ones(3))), torch.ones(4, 3)).exp())
        assert flops.report() == (
            "flops: 24 forward, 0 backward, 0 parameters\nno formula: gelu (2), exp (1)"
        )

    def test_lists_what_ran_in_forward_mode_and_may_have_tangents(self):
        x, layer = torch.ones(2, 3), nn.Linear(3, 4)
        flops = counted(lambda: [torch.func.jvp(layer, (x,), (x,)), layer(x)])
        assert (flops.total().forward, flops.total().uncounted_tangents) == (96, {"linear": 1})
        assert "tangents are not counted: linear (1)" in flops.report()


class TestBytes:
    def test_are_those_of_inputs_and_outputs(self):
        a, b = torch.ones(2, 3, dtype=torch.float64), torch.ones(3, 5, dtype=torch.float64)
        assert counted(lambda: a @ b).total().bytes == 8 * (6 + 15 + 10)

    def test_of_a_view_are_none(self):
        x = torch.ones(2, 3)
        assert counted(lambda: x.t().view(3, 2).unsqueeze(0)[0]).total().bytes == 0

    def test_of_an_in_place_operator_are_read_and_written(self):
        x = torch.ones(2, 3)
        assert counted(x.relu_).total().bytes == 2 * 24

    def test_of_a_destination_are_written_only(self):
        x, out = torch.ones(2, 3), torch.empty(2, 3)
        assert counted(lambda: torch.exp(x, out=out)).total().bytes == 2 * 24

    def test_of_a_sparse_tensor_are_those_of_its_elements(self):
        x = torch.eye(3).to_sparse()
        assert counted(x.neg).total().bytes == 2 * 12

    def test_within_vmap_are_those_of_the_whole_batch(self):
        x = torch.ones(7, 3)
        assert counted(lambda: torch.vmap(torch.exp)(x)).total().bytes == 2 * 7 * 12


class TestParameters:
    def test_of_several_operators_are_counted_once(self):
        weight = nn.Parameter(torch.ones(3, 3))
        flops = counted(lambda: F.linear(torch.ones(2, 3) @ weight, weight))
        assert flops.total().params == 9
        assert [row.params for row in flops.rows() if row.params] == [9, 9]

    def test_of_tied_layers_are_counted_once_in_all_and_in_each(self):
        model = nn.ModuleDict({"embed": nn.Embedding(7, 3), "head": nn.Linear(3, 7, bias=False)})
        model["head"].weight = model["embed"].weight
        ids = torch.tensor([1, 2])

        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self):
                return model["head"](model["embed"](ids))

        tied = Tied()
        modules = counted(tied).by_module()
        assert {path: modules[path].params for path in ("", "model.embed", "model.head")} == {
            "": 21, "model.embed": 21, "model.head": 21,
        }  # fmt: skip

    def test_that_are_frozen_or_normalize_are_counted(self):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.PReLU())
        model[0].requires_grad_(False)
        flops = counted(lambda: model(torch.ones(2, 3, 5, 5)))
        assert flops.total().params == sum(p.numel() for p in model.parameters())

    def test_of_a_parametrized_weight_are_those_it_is_made_of(self):
        layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
        flops = counted(lambda: layer(torch.ones(2, 3)))
        assert flops.total().params == sum(p.numel() for p in layer.parameters())

    def test_are_not_those_of_operators_that_fill_them(self):
        def make_and_run():
            nn.Linear(3, 4)
            nn.Linear(4, 4)(torch.ones(2, 4))

        assert counted(make_and_run).total().params == 20

    def test_are_not_those_of_operators_that_look_at_them(self):
        layer = nn.Linear(4, 4)
        assert counted(lambda: (layer.weight[0], layer.weight.t())).total().params == 0

    def test_are_those_that_a_view_shows(self):
        layer = nn.Linear(3, 4)
        assert counted(lambda: torch.ones(2, 3) @ layer.weight.t()).total().params == 12

    def test_are_those_that_an_operator_in_place_is_given(self):
        scale = nn.Parameter(torch.ones(4))
        assert counted(lambda: torch.ones(2, 4).mul_(scale)).total().params == 4

    def test_are_freed_with_the_model(self):
        flops, layer = Flops(), nn.Linear(3, 4)
        weight = weakref.ref(layer.weight)
        with amanda.apply(flops):
            layer(torch.ones(2, 3)).sum().backward()
            del layer
            gc.collect()
            assert weight() is None
            other = nn.Linear(5, 2)
            other(torch.ones(2, 5))
        assert flops.total().params == 16 + 12


class TestFile:
    def test_holds_the_totals_and_a_row_for_each_operator(self, tmp_path):
        flops, model = Flops(out=tmp_path / "flops.json"), Block()
        with amanda.apply(flops):
            model(torch.ones(2, 3))
        written = json.loads((tmp_path / "flops.json").read_text())
        assert written["total"]["forward"] == 2 * 2 * (3 * 4 + 4 * 3)
        assert written["total"]["uncounted"] == {"relu": 1}
        _, first, _, second = written["operators"]  # the first of all is torch.ones
        assert (first["scope"], first["type"], first["forward"]) == ("first", "linear", 48)
        assert (second["id"], second["calls"], second["params"]) == ("second/linear", 1, 12)

    def test_is_brought_up_to_date_by_another_scope(self, tmp_path):
        path, model = tmp_path / "flops.json", Block()
        flops = Flops(out=path)
        sizes = []
        for _ in range(2):
            with amanda.apply(flops):
                model(torch.ones(2, 3))
            sizes.append(json.loads(path.read_text())["total"]["forward"])
        assert sizes == [96, 192]

    def test_that_cannot_be_written_is_refused_at_once(self, tmp_path):
        with pytest.raises(OSError, match="nowhere"):
            Flops(out=tmp_path / "nowhere" / "flops.json")


class TestSums:
    def test_by_module_tell_models_apart_that_have_equal_paths(self):
        one = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        other = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
        modules = counted(lambda: other(one(torch.ones(2, 4)))).by_module()
        assert {path: (sum.params, sum.forward) for path, sum in modules.items()} == {
            "": (95, 316),
            "Sequential": (76, 256),
            "Sequential.0": (40, 128),
            "Sequential.1": (0, 0),
            "Sequential.2": (36, 128),
            "Sequential#2": (19, 60),
            "Sequential#2.0": (15, 48),
            "Sequential#2.1": (4, 12),
        }

    def test_by_module_name_no_model_where_modules_tell(self):
        one = nn.ModuleDict({"encoder": nn.Linear(2, 3)})
        other = nn.ModuleDict({"decoder": nn.Linear(3, 2)})
        one.forward, other.forward = (lambda x: one.encoder(x)), (lambda x: other.decoder(x))
        modules = counted(lambda: other(one(torch.ones(1, 2)))).by_module()
        assert list(modules) == ["", "encoder", "decoder"]

    def test_by_module_contain_what_is_inside(self):
        model = Model()
        modules = counted(lambda: model(torch.ones(2, 3))).by_module()
        assert {path: (sum.forward, sum.params) for path, sum in modules.items()} == {
            "": (48 + 48 + 60, 16 + 12 + 20),
            "block": (96, 28),
            "block.first": (48, 16),
            "block.second": (48, 12),
            "head": (60, 20),
        }

    def test_by_type_count_the_places(self):
        model = Model()
        types = counted(lambda: model(torch.ones(2, 3))).by_type()
        assert (types["linear"].operators, types["linear"].forward) == (3, 156)
        assert types["relu"].uncounted == {"relu": 1}

    def test_columns_show_a_shared_parameter_at_its_first_place(self):
        weight = nn.Parameter(torch.ones(3, 3))
        flops = counted(lambda: F.linear(torch.ones(2, 3) @ weight, weight).sum().backward())
        columns = {column.title: column for column in flops.columns()}
        assert list(columns) == ["FLOPs", "Backward FLOPs", "Params", "Moved", "Count"]
        assert sum(columns["FLOPs"].values.values()) == 72
        assert sum(columns["Backward FLOPs"].values.values()) == 36 + 72
        params = {place.type: size for place, size in columns["Params"].values.items() if size}
        assert params == {"matmul": 9}


class TestFormulas:
    def test_of_a_user_count_an_operator(self, operator):
        @formula("flops_test::square", operands=(0,))
        def square(inputs, outputs, attrs):
            return 2 * prod(outputs[0]) * inputs[0][-1]

        total = counted(lambda: operator(torch.ones(3, 3))).total()
        assert (total.forward, total.macs, total.uncounted) == (54, 27, {})

    def test_that_are_no_contraction_have_no_macs(self):
        @formula("exp")
        def exponential(inputs, outputs, attrs):
            return prod(outputs[0])

        try:
            total = counted(lambda: torch.ones(2, 3).exp()).total()
        finally:
            del tables()["torch"].formulas["exp"]
        assert (total.forward, total.macs, total.uncounted) == (6, 0, {})

    def test_count_also_in_an_operator_that_has_no_contraction_inside(self):
        def normalized():
            return nn.functional.layer_norm(torch.ones(2, 3), [3])

        assert counted(normalized).total().uncounted == {"layer_norm": 1}

        @formula("native_layer_norm")
        def layer_norm(inputs, outputs, attrs):
            return 5 * prod(outputs[0])

        try:
            total = counted(normalized).total()
        finally:
            del tables()["torch"].formulas["native_layer_norm"]
        assert (total.forward, total.uncounted) == (30, {})

    def test_without_a_gradient_leave_that_uncounted(self, operator):
        @formula("flops_test::square")
        def square(inputs, outputs, attrs):
            return 1

        x = torch.ones(3, 3, requires_grad=True)
        total = counted(lambda: operator(x).sum().backward()).total()
        assert (total.forward, total.backward) == (1, 0)
        assert total.uncounted_backward == {"flops_test::square": 1}

    def test_may_tell_of_the_gradient(self, operator):
        @formula("flops_test::square")
        def square(inputs, outputs, attrs):
            return 1

        @square.gradient
        def square_gradient(inputs, outputs, attrs, flows):
            return 100 * flows[0] + outputs[0][0]

        x = torch.ones(3, 3, requires_grad=True)
        total = counted(lambda: operator(x).sum().backward()).total()
        assert (total.backward, total.uncounted_backward) == (103, {})

    def test_see_attributes(self):
        @formula("softmax")
        def softmax(inputs, outputs, attrs):
            return inputs[0][attrs["dim"]]

        try:
            total = counted(lambda: torch.ones(2, 3).softmax(dim=-1)).total()
        finally:
            del tables()["torch"].formulas["softmax"]
        assert total.forward == 3

    def test_that_fail_are_named(self, operator):
        @formula("flops_test::square")
        def square(inputs, outputs, attrs):
            raise ZeroDivisionError("no way")

        with pytest.raises(amanda.RoutineError, match=r"flops_test::square.*no way"):
            counted(lambda: operator(torch.ones(3, 3)))


def test_results_are_those_without_the_tool():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(36, 5))
    x = torch.randn(2, 3, 5, 5)

    def step():
        model.zero_grad()
        loss = F.dropout(model(x)).square().sum()
        loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters())]

    torch.manual_seed(1)
    plain = step()
    torch.manual_seed(1)
    with amanda.apply(Flops()):
        seen = step()
    assert all(torch.equal(a, b) for a, b in zip(plain, seen, strict=True))
