"""Tools of one scope: what is pruned is quantized, and what is quantized is traced and timed."""

import amanda
import pytest
import torch
from amanda_tools import Flops, Profile, Trace, read_trace
from amanda_tools.pruning import MagnitudePruning
from amanda_tools.quantization import Quantize, QuantizeAware
from torch import nn

WEIGHT = torch.tensor([[0.1, -0.2, 0.9, 1.0], [2.0, -8.0, 0.3, 0.4]])


class Drop(amanda.Tool):
    """The largest weight of each row counts as zero, so that the range of the row is another."""

    def __init__(self):
        super().__init__(namespace="onnx")
        self.add_inst_for_op(self.analyze, ops=["Gemm"])

    def analyze(self, ctx):
        ctx.insert_before_op(self.dropped, inputs=["B"], xp=ctx.xp, pure=True)

    def dropped(self, weight, xp):
        size = xp.abs(weight)
        return xp.where(size == xp.max(size, axis=1, keepdims=True), weight * 0, weight)


def model():
    layer = nn.Linear(4, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(WEIGHT)
    return layer


def weight_under(*tools):
    """What the product is given for its weight."""
    with amanda.apply(*tools), torch.no_grad():
        return model()(torch.eye(4)).T


def rounded(weight):
    scale = weight.abs().amax(1) / 127.5
    zero = torch.zeros(2)
    return torch.fake_quantize_per_channel_affine(weight, scale, zero, 0, -128, 127)


def test_the_order_of_pruning_and_quantizing_is_the_user_s():
    dropped = torch.where(WEIGHT.abs() == WEIGHT.abs().amax(1, keepdim=True), 0, WEIGHT)
    pruned_first = weight_under(Drop(), QuantizeAware(8, 0))
    quantized_first = weight_under(QuantizeAware(8, 0), Drop())
    assert torch.equal(pruned_first, rounded(dropped))  # by the range of what is left
    assert torch.equal(quantized_first, torch.where(dropped == 0, 0, rounded(WEIGHT)))
    assert not torch.equal(pruned_first, quantized_first)


def test_the_scales_of_weights_that_stay_are_those_of_the_model_in_either_order():
    pruned_first, quantized_first = Quantize(), Quantize()
    one = weight_under(Drop(), pruned_first)
    other = weight_under(quantized_first, Drop())
    assert torch.equal(one, other)
    assert pruned_first.rows()[0].scale == quantized_first.rows()[0].scale


def test_pruned_quantized_traced_and_profiled_in_one_scope(tmp_path):
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    pruning, quantize = MagnitudePruning(0.5), Quantize(4, "dynamic")
    trace, profile, flops = Trace(tmp_path / "trace.jsonl"), Profile(), Flops()
    x = torch.randn(3, 8)
    with amanda.apply(pruning, quantize, trace, profile, flops):
        y = net(x)
        y.sum().backward()
    with amanda.apply(Quantize(4, "dynamic")):
        assert not torch.equal(net(x), y)  # since nothing is pruned
    rows = [row for row in read_trace(trace._file.path) if row["type"] == "linear"]
    assert [row["id"] for row in rows if row["direction"] == "forward"] == ["0/linear", "2/linear"]
    assert {row.input for row in quantize.rows()} == {"A", "B"}
    assert sum(row.type == "linear" for row in profile.rows()) == 2
    assert flops.total().forward == 2 * 3 * (8 * 16 + 16 * 4)


def test_quantized_weights_are_written_into_the_model():
    tool, layer = Quantize(4), model()
    with amanda.apply(tool), torch.no_grad():
        expected = layer(torch.eye(4))
    tool.make_permanent(layer)
    assert torch.equal(layer(torch.eye(4)), expected)
    assert len(layer.weight.unique()) <= 16


def test_rounded_activations_are_not_written_into_the_model_but_added_by_a_tool_of_their_own():
    x, layer = torch.randn(4, 4), model()
    both, weights = Quantize(4, "dynamic"), Quantize(4)
    with amanda.apply(both), torch.no_grad():
        expected = layer(x)
    with pytest.raises(amanda.UnsupportedError, match=r"is an activation.* one with bits=0"):
        both.make_permanent(layer)
    with amanda.apply(weights), torch.no_grad():
        layer(x)
    weights.make_permanent(layer)
    with amanda.apply(Quantize(0, "dynamic")), torch.no_grad():
        assert torch.equal(layer(x), expected)
