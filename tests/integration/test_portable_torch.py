"""Portable tools on PyTorch, held to what plain PyTorch computes."""

import amanda
import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from amanda import Tool
from amanda_contextmap import MappingTool, register, rule
from amanda_contextmap.testing import own_entries
from portable_tools import Flops, Prune, QuantizeWeights, WeightGradients
from torch import nn
from torch.nn.utils import parametrizations as pz
from torch.utils.flop_counter import FlopCounterMode


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.Flatten(),
        nn.Linear(8 * 4 * 4, 5),
    )


X = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1))


def watching(analyze, ops=None, layout="canonical", **options):
    tool = Tool(namespace="onnx", layout=layout)
    tool.add_inst_for_op(analyze, ops=ops, **options)
    return tool


def on_gradient(analyze, ops):
    tool = Tool(namespace="onnx")
    tool.add_inst_for_gradient(analyze, ops=ops)
    return tool


def halved(weight):
    rows = weight.detach().flatten(1).abs()
    return (
        weight.detach().abs() >= rows.quantile(0.5, 1).reshape(-1, *[1] * (weight.ndim - 1))
    ) * 1.0


def quantized(weight):
    rows = tuple(range(1, weight.ndim))
    scale = weight.abs().amax(rows, keepdim=True) / 127
    return (weight / scale).round() * scale


class TestWeights:
    def test_pruned_by_role(self):
        pruned, plain = network(), network()
        with torch.no_grad():
            for parameter in plain.parameters():
                if parameter.ndim > 1:
                    parameter *= halved(parameter)
        with amanda.apply(Prune()):
            torch.testing.assert_close(pruned(X), plain(X))

    def test_quantized_by_role(self):
        model, plain = network(), network()
        with torch.no_grad():
            for parameter in plain.parameters():
                if parameter.ndim > 1:
                    parameter.copy_(quantized(parameter))
        with amanda.apply(QuantizeWeights()):
            torch.testing.assert_close(model(X), plain(X), rtol=0, atol=0)

    def test_their_gradients_are_those_of_masked_weights_and_are_not_masked_themselves(self):
        pruned, plain = network(), network()
        with torch.no_grad():
            for parameter in plain.parameters():
                if parameter.ndim > 1:
                    parameter *= halved(parameter)
        with amanda.apply(Prune()):
            pruned(X).square().sum().backward()
        plain(X).square().sum().backward()
        for one, other in zip(pruned.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)

    def test_a_linear_weight_is_seen_as_out_and_in_however_it_is_stored(self):
        weight = nn.Parameter(torch.randn(4, 5))
        x, shapes = torch.randn(2, 3, 4), []

        def look(ctx):
            assert ctx.weight_index == 1
            np.testing.assert_array_equal(ctx.value(1), weight.detach().numpy().T)
            ctx.insert_before_op(lambda w: shapes.append(tuple(w.shape)) or 2 * w, inputs=["B"])

        with amanda.apply(watching(look, ["Gemm"])):
            found = x @ weight
        torch.testing.assert_close(found, 2 * x @ weight)
        assert shapes == [(5, 4)]

    def test_or_as_it_is_stored(self):
        weight = nn.Parameter(torch.randn(4, 5))
        shapes = []

        def look(ctx):
            ctx.insert_before_op(lambda w: shapes.append(tuple(w.shape)), inputs=["B"])

        with amanda.apply(watching(look, ["Gemm"], layout="native")):
            torch.randn(3, 4) @ weight
        assert shapes == [(4, 5)]


class TestWhichInputIsTheWeight:
    READS = {
        "itself": lambda w: w,
        "transposed": lambda w: w.T.contiguous().T,
        "cast": lambda w: w.double().float(),
        "view": lambda w: w.view(-1).view(5, 4),
        "slice": lambda w: w[:3],
        "copy": lambda w: w.clone(),
    }

    @pytest.mark.parametrize("read", READS.values(), ids=READS)
    def test_a_parameter_however_it_is_read(self, read):
        found = []
        weight = nn.Parameter(torch.randn(5, 4))
        with amanda.apply(watching(lambda ctx: found.append(ctx.weight_index), ["Gemm"])):
            F.linear(torch.randn(3, 4), read(weight))
        assert found == [1]

    @pytest.mark.parametrize("read", READS.values(), ids=READS)
    @pytest.mark.parametrize("frozen", [True, False])
    def test_also_without_gradients(self, read, frozen):
        found = []
        weight = nn.Parameter(torch.randn(5, 4), requires_grad=not frozen)
        tool = watching(lambda ctx: found.append(ctx.weight_index), ["Gemm"])
        with amanda.apply(tool), torch.no_grad():
            F.linear(torch.randn(3, 4), read(weight))
        assert found == [1]

    def test_also_in_inference_mode(self):
        found = []
        weight = nn.Parameter(torch.randn(4, 5))
        tool = watching(lambda ctx: found.append(ctx.weight_index), ["Gemm"])
        with amanda.apply(tool), torch.inference_mode():
            F.linear(torch.randn(3, 4), weight.T.contiguous())
        assert found == [1]

    def test_a_copy_of_an_activation_without_gradients_is_none(self):
        found = []
        with (
            amanda.apply(watching(lambda ctx: found.append(ctx.weight_index), ["Gemm"])),
            torch.no_grad(),
        ):
            F.linear(torch.randn(3, 4), torch.randn(5, 4).double().float().clone())
        assert found == [None]

    def test_an_activation_is_none(self):
        found = []
        x = (torch.randn(3, 4) @ nn.Parameter(torch.randn(4, 4))).T
        with amanda.apply(watching(lambda ctx: found.append(ctx.weight_index), ["MatMul", "Add"])):
            _ = x @ x.T + x.sum()
        assert found == [None, None]

    COMPUTED = {
        "linear": lambda: pz.weight_norm(nn.Linear(4, 5))(torch.ones(2, 4)),
        "conv": lambda: pz.spectral_norm(nn.Conv2d(1, 2, 2))(torch.ones(1, 1, 3, 3)),
        "normalization": lambda: F.layer_norm(
            torch.ones(2, 4), [4], nn.Parameter(torch.ones(4)) * 2, nn.Parameter(torch.ones(4))
        ),
    }

    @pytest.mark.parametrize("run", COMPUTED.values(), ids=COMPUTED)
    def test_where_it_is_computed_the_bias_beside_it_is_none(self, run):
        found = []
        tool = watching(
            lambda ctx: found.append((ctx.weight_index, ctx.parameters)),
            ["Gemm", "Conv", "LayerNormalization"],
        )
        with amanda.apply(tool):
            run()
        assert found == [(None, [2])]

    def test_also_in_the_backward_pass(self):
        found = []
        model = network()
        with amanda.apply(
            on_gradient(lambda ctx: found.append(ctx.weight_index), ["Conv", "Gemm"])
        ):
            model(X).sum().backward()
        assert found == [1, 1, 1]


class TestGradients:
    def test_by_role(self):
        model, plain, tool = network(), network(), WeightGradients()
        with amanda.apply(tool):
            model(X).square().sum().backward()
        plain(X).square().sum().backward()
        found = {scope: tool.found[scope] for scope in ("0", "2", "4")}
        for scope, gradient in found.items():
            np.testing.assert_allclose(gradient, plain[int(scope)].weight.grad, rtol=1e-5)

    def test_in_the_layout_of_the_weight(self):
        weight = nn.Parameter(torch.randn(4, 5))
        x, shapes = torch.randn(3, 4), []

        def analyze(ctx):
            ctx.insert_on_grad_inputs(
                lambda g: shapes.append(tuple(g.shape)) or 2 * g, inputs=["B"]
            )

        with amanda.apply(on_gradient(analyze, ["Gemm"])):
            (x @ weight).sum().backward()
        assert shapes == [(5, 4)]
        torch.testing.assert_close(weight.grad, 2 * x.sum(0)[:, None].expand(4, 5))

    def test_backward_operators_are_named_after_the_forward_ones(self):
        found = []

        def analyze(ctx):
            found.append((ctx.op.type, ctx.backward_op.type, list(ctx.input_names)))

        tool = watching(analyze, ["Conv", "ReluGrad"], backward=True)
        with amanda.apply(tool):
            network()(X).sum().backward()
        assert found == [
            ("Conv", "ConvGrad", ["X", "W", "B"]),
            ("Relu", "ReluGrad", ["X"]),
            ("Conv", "ConvGrad", ["X", "W", "B"]),
        ]

    def test_a_changed_gradient_of_an_activation_reaches_what_came_before(self):
        model, plain = network(), network()

        def analyze(ctx):
            ctx.insert_on_grad_inputs(lambda g: 3 * g, inputs=["A"])

        with amanda.apply(on_gradient(analyze, ["Gemm"])):
            model(X).sum().backward()
        plain(X).sum().backward()
        torch.testing.assert_close(model[0].weight.grad, 3 * plain[0].weight.grad)
        torch.testing.assert_close(model[4].weight.grad, plain[4].weight.grad)


class TestVocabulary:
    def test_flops_are_those_of_pytorchs_counter(self):
        model, tool = network(), Flops()
        with amanda.apply(tool):
            model(X)
        with FlopCounterMode(display=False) as counter:
            model(X)
        assert sum(tool.total.values()) == counter.get_total_flops()

    def test_an_operator_that_onnx_lacks_goes_by_its_own_name(self):
        found = []
        tool = watching(lambda ctx: found.append(list(ctx.input_names)), ["torch::erfinv"])
        with amanda.apply(tool):
            torch.erfinv(torch.zeros(3))
        assert found == [["self"]]

    def test_an_operator_of_ones_own(self):
        @torch.library.custom_op("portable::double", mutates_args=())
        def double(x: torch.Tensor, times: int) -> torch.Tensor:
            return x * times

        found = []

        def look(ctx):
            found.append((list(ctx.input_names), dict(ctx.attrs)))

        with own_entries("torch"):
            register("torch", "portable::double", rule("Mul", "A=x B=times"))
            with amanda.apply(watching(look, ["Mul"])):
                double(torch.ones(2), 3)
        assert found[0] == (["A"], {"B": 3})

    def test_what_is_given_and_returned_is_of_one_batch_for_a_single_example(self):
        shapes = []
        conv = nn.Conv2d(3, 4, 3)

        def look(ctx):
            ctx.insert_after_op(lambda y: shapes.append(tuple(y.shape)) or y * 2)

        with amanda.apply(watching(look, ["Conv"])):
            found = conv(X[0])
        torch.testing.assert_close(found, 2 * conv(X[0]))
        assert shapes == [(1, 4, 4, 4)]


def products(run, ops=("Gemm", "MatMul"), **options):
    """The operators that a tool is shown, and the sum of what their first outputs hold."""
    shown, sums = [], []

    def look(ctx):
        shown.append((ctx.op.type, ctx.op.id))
        ctx.insert_after_op(lambda y: sums.append(y.sum().item()), outputs=[0])

    tool = watching(look, list(ops), **options)
    with amanda.apply(tool):
        run()
    return shown, sums


class TestPlacesOutsideOfModules:
    def test_each_setting_is_translated(self):
        x, found = torch.randn(3, 4, 5), []

        def look(ctx):
            (axes,) = ctx.attrs["axes"]
            ctx.insert_after_op(lambda y: found.append(torch.equal(y, x.sum(axes, True))))

        with amanda.apply(watching(look, ["ReduceSum"])):
            for axis in (2, 0, 1, 2):
                x.sum(axis, keepdim=True)
        assert found == [True] * 4

    def test_a_number_that_cannot_be_told_leaves_the_operator_its_own_name(self):
        types = []
        tool = watching(lambda ctx: types.append(ctx.op.type))
        x = torch.ones(3)
        with amanda.apply(tool):
            for i in range(40):
                x * i
        assert types == ["Mul"] * 8 + ["torch::mul"]

    def test_nor_is_a_setting_taken_for_one_that_is_not_given(self):
        types = []
        tool = watching(lambda ctx: types.append((ctx.op.type, ctx.attrs.get("axes"))), None)
        x = torch.randn(*[1] * 12)
        with amanda.apply(tool):
            for i in range(12):
                x.sum(i)
        assert [type for type, _ in types if "sum" in type.lower()] == ["ReduceSum"] * 8 + [
            "torch::sum"
        ]


class TestOneNativeTypeForSeveral:
    """Who takes an operator as one is told by what it is there, not by its native type."""

    def test_an_einsum_that_is_no_product_shows_the_one_inside(self):
        a, b = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
        shown, sums = products(lambda: torch.einsum("bij,bjk->ik", a, b))
        assert shown == [("MatMul", "bmm")]
        assert sums == pytest.approx([(a @ b).sum().item()], rel=1e-5)

    def test_an_einsum_of_batches_of_matrices_is_their_product(self):
        a, b = torch.randn(2, 4, 3), torch.randn(4, 2, 5)
        shown, sums = products(lambda: torch.einsum("bji,jbk->ibk", a, b))
        assert shown == [("MatMul", "einsum")]
        assert sums == pytest.approx([(a.mT @ b.movedim(0, 1)).sum().item()], rel=1e-5)

    def test_what_a_tool_returns_for_it_is_turned_back(self):
        a = torch.randn(2, 4, 3, requires_grad=True)
        b = torch.randn(4, 2, 5, requires_grad=True)
        tool = Tool(namespace="onnx")

        def look(ctx):
            ctx.insert_before_op(lambda rows: 2 * rows, inputs=["A"])
            ctx.insert_after_op(lambda y: y + torch.arange(5.0))  # by the columns

        tool.add_inst_for_op(look, ops=["MatMul"])
        tool.add_inst_for_gradient(
            lambda ctx: ctx.insert_on_grad_inputs(lambda g: g * torch.arange(4.0), inputs=["A"]),
            ops=["MatMul"],
        )
        with amanda.apply(tool):
            y = torch.einsum("bji,jbk->ibk", a, b)
            y.sum().backward()
        product = torch.einsum("bji,jbk->ibk", a, b)
        torch.testing.assert_close(y, 2 * product + torch.arange(5.0))
        summed = b.sum(2).mT[:, :, None] * torch.arange(4.0)[:, None]
        torch.testing.assert_close(a.grad, summed.expand(2, 4, 3))
        torch.testing.assert_close(b.grad, 2 * a.sum(2).mT[:, :, None].expand(4, 2, 5))

    def test_an_einsum_that_is_a_layer_is_one(self):
        x, weight = torch.randn(6, 4), nn.Parameter(torch.randn(4, 5))
        shown, sums = products(lambda: torch.einsum("ij,jk->ik", x, weight))
        assert shown == [("Gemm", "einsum")]
        assert sums == pytest.approx([(x @ weight).sum().item()], rel=1e-5)

    def test_both_at_one_place_of_two_models(self):
        class Contract(nn.Module):
            def __init__(self, weight):
                super().__init__()
                self.weight = weight

            def forward(self, x):
                return torch.einsum("bij,bjk->ik", x, self.weight).relu()

        class Project(Contract):
            def forward(self, x):
                return torch.einsum("bij,jk->bik", x, self.weight)

        x = torch.randn(2, 3, 4)
        model = nn.Sequential(Project(nn.Parameter(torch.randn(4, 4))), Contract(x.mT))
        for _ in range(2):  # also from the plan that was kept
            shown, _ = products(lambda: model(x))
            assert shown == [("Gemm", "0/einsum"), ("MatMul", "1/bmm")]

    def test_a_tool_that_wants_it_hides_it_from_no_other(self):
        a, b = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
        other, native = [], Tool()
        native.add_inst_for_op(lambda ctx: other.append(ctx.op.id), ops=["einsum", "bmm"])
        with amanda.apply(native):
            shown, _ = products(lambda: torch.einsum("bij,bjk->ik", a, b))
        assert shown == [("MatMul", "bmm")]
        assert other == ["einsum"]

    def test_the_gradient_is_that_of_the_product_inside(self):
        a, b = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 4, 5)
        grads, tool = [], Tool(namespace="onnx")

        def look(ctx):
            grads.append((ctx.op.id, ctx.grad_inputs[0].reshape(3, 2, 4).movedim(1, 0).clone()))

        tool.add_inst_for_gradient(look, ops=["Gemm", "MatMul"])
        with amanda.apply(tool):
            torch.einsum("bij,bjk->ik", a, b).sum().backward()
        ((id, grad),) = grads
        assert id == "bmm"
        torch.testing.assert_close(grad, torch.ones(2, 3, 5) @ b.mT)


NESTED = {
    "transpose": lambda n: n.transpose(-1, -2),
    "linear": lambda n: F.linear(n, torch.ones(3, 4)),
    "layer_norm": lambda n: F.layer_norm(n, (4,), torch.ones(4), torch.zeros(4)),
    "softmax": lambda n: n.softmax(-1),
    "mul": lambda n: n * 2,
    "sum": lambda n: n.sum(-1, keepdim=True),
    "gelu": F.gelu,
}


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize("run", NESTED.values(), ids=NESTED)
def test_nested_tensors_which_do_not_tell_their_sizes_are_shown(run, layout):
    parts = [torch.ones(2, 4), torch.arange(12.0).view(3, 4)]
    nested = torch.nested.nested_tensor(parts, layout=layout)
    expected, types = run(nested), []
    with amanda.apply(watching(lambda ctx: types.append(ctx.op.type))):
        found = run(nested)
    assert types
    for one, other in zip(found.unbind(), expected.unbind(), strict=True):
        assert torch.equal(one, other)


class TestMappingTools:
    """The published way: a tool writes into the context what another one reads there."""

    def test_it_writes_before_the_tool_reads(self):
        types = {"conv2d": "Conv", "linear": "Gemm"}

        def torch_type(ctx):
            ctx["type"] = types.get(ctx.op.type)

        class Count(Tool):
            def __init__(self):
                super().__init__()
                self.found = []
                self.depends_on(MappingTool([["pytorch", torch_type], ["tensorflow", None]]))
                self.add_inst_for_op(lambda ctx: self.found.append(ctx["type"]))

        tool, model = Count(), network()
        with amanda.apply(tool):
            model(X)
        assert tool.found == ["Conv", None, "Conv", None, "Gemm"]

    def test_what_it_wrote_is_there_in_the_backward_pass(self):
        mapping = MappingTool(
            [["pytorch", lambda ctx: ctx.update(type=ctx.op.type.upper())]], ops=["conv2d"]
        )
        found = []
        tool = Tool()
        tool.depends_on(mapping)
        tool.add_inst_for_op(
            lambda ctx: found.append((ctx["type"], ctx.backward_op.type)),
            backward=True,
            ops=["conv2d"],
        )
        model = network()
        with amanda.apply(tool):
            model(X).sum().backward()
        assert found == [("CONV2D", "ConvolutionBackward0")] * 2
