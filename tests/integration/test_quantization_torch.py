"""What models compute and learn under tools that quantize, held to PyTorch's own functions."""

import amanda
import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from amanda_tools.faults import Faults
from amanda_tools.pruning import VectorWisePruning
from amanda_tools.quantization import Quantize, QuantizeAware
from torch import nn

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(6, 5, generator=GENERATOR)
W = torch.randn(4, 5, generator=GENERATOR)


def linear(x, w):
    """A product whose gradient is one of both."""
    return F.linear(x * 1, w)


TIES = torch.arange(-8, 7).reshape(3, 5) + 0.5  # which lie between two integers for a scale of 1


def signed(bits):
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def settings(low, high, grid, symmetric):
    """Scale and zero point as torch.ao's observers choose them."""
    low, high = torch.clamp(low, max=0), torch.clamp(high, min=0)
    if symmetric:
        scale = torch.maximum(-low, high) / ((grid[1] - grid[0]) / 2)
        return scale, torch.zeros_like(scale)
    scale = (high - low) / (grid[1] - grid[0])
    return scale, torch.clamp(grid[0] - torch.round(low / scale), *grid)


def by_tensor(x, grid, symmetric=False, like=None):
    """Rounded by the range of the tensor, or of another one."""
    like = x.detach() if like is None else like
    scale, zero_point = settings(like.min(), like.max(), grid, symmetric)
    return torch.fake_quantize_per_tensor_affine(x, float(scale), int(zero_point), *grid)


def by_channel(w, grid, symmetric=True):
    rows = w.detach().flatten(1)
    scale, zero_point = settings(rows.amin(1), rows.amax(1), grid, symmetric)
    return torch.fake_quantize_per_channel_affine(w, scale, zero_point, 0, *grid)


def with_gradients(f, *tensors):
    """What a function gives, and the gradients of the sum of its squares."""
    leaves = [nn.Parameter(t.clone()) for t in tensors]
    y = f(*leaves)
    y.square().sum().backward()
    return [y.detach(), *(leaf.grad for leaf in leaves)]


def under(tool, f, *tensors):
    with amanda.apply(tool):
        return with_gradients(f, *tensors)


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "affine"])
@pytest.mark.parametrize("per_channel", [True, False], ids=["channel", "tensor"])
def test_weights(bits, symmetric, per_channel):
    grid = signed(bits) if symmetric else (0, 2**bits - 1)
    by = by_channel if per_channel else by_tensor
    tool = Quantize(bits, symmetric=symmetric, per_channel=per_channel)
    found = under(tool, lambda w: F.linear(X, w), W)
    assert_equal(found, with_gradients(lambda w: F.linear(X, by(w, grid, symmetric)), W))
    (row,) = tool.rows()
    assert (row.input, row.kind, row.low, row.high) == ("B", "weight", *grid)
    assert len(row.scale) == (4 if per_channel else 1)
    assert 0 < row.error < 0.2


def test_a_narrow_grid_leaves_out_the_lowest_integer():
    found = under(Quantize(4, narrow=True), lambda w: F.linear(X, w), W)
    assert_equal(found, with_gradients(lambda w: F.linear(X, by_channel(w, (-7, 7))), W))


@pytest.mark.parametrize(
    ("f", "shape", "axis"),
    [
        (lambda x, w: F.conv2d(x, w, padding=1, groups=2), (6, 2, 3, 3), 0),
        (lambda x, w: F.conv_transpose2d(x, w), (4, 6, 3, 3), 1),
        (lambda x, w: x.mT @ w, (4, 3), 1),
    ],
    ids=["conv", "transposed conv", "matmul"],
)
def test_channels_are_those_of_the_output(f, shape, axis):
    x, w = torch.randn(2, 4, 5, 5), torch.randn(shape)
    if axis == 1 and len(shape) == 2:
        x = x.flatten(2)
    channels = w.movedim(axis, 0).flatten(1)
    scale, zero_point = settings(channels.amin(1), channels.amax(1), (-128, 127), True)
    tool = Quantize()

    def by_hand(w):
        rounded = torch.fake_quantize_per_channel_affine(w, scale, zero_point, axis, -128, 127)
        return f(x, rounded)

    assert_equal(under(tool, lambda w: f(x, w), w), with_gradients(by_hand, w))


@pytest.mark.parametrize("activations", ["dynamic", "minmax"])
def test_operands_of_functions_that_are_called_anywhere(activations):
    q, k, v = (torch.randn(2, 3, 5, 4) for _ in range(3))
    tool = Quantize(activations=activations)

    def attention(q, k, v):
        return F.scaled_dot_product_attention(q * 1, k * 1, v * 1) @ (v.mT * 1)

    plain = F.scaled_dot_product_attention(q, k, v) if activations == "minmax" else None

    def by_hand(q, k, v):
        rounded = [by_tensor(t, (0, 255)) for t in (q, k, v)]
        y = F.scaled_dot_product_attention(*rounded)
        return by_tensor(y, (0, 255), like=plain) @ by_tensor(v.mT, (0, 255))

    if activations == "minmax":
        under(tool, attention, q, k, v)
        tool.freeze()
    assert_equal(under(tool, attention, q, k, v), with_gradients(by_hand, q, k, v))
    assert {(row.type, row.input) for row in tool.rows()} == {
        *(("Attention", name) for name in "QKV"),
        *(("MatMul", name) for name in "AB"),
    }


def test_each_vector_that_is_summed_up_may_have_a_range_of_its_own():
    tool = Quantize(0, activations="per_token")
    found = under(tool, lambda x, y: (x * 1) @ (y * 1), X, W.mT)
    rows = torch.stack([by_tensor(row, (0, 255)) for row in X])
    columns = torch.stack([by_tensor(column, (0, 255)) for column in W], 1)
    assert torch.equal(found[0], rows @ columns)


def test_what_lies_beyond_a_calibrated_range_is_cut_off_and_gets_no_gradient():
    tool = Quantize(0, activations="minmax", calibrate=1)
    scale, zero_point = settings(X.min(), X.max(), (0, 255), False)

    def by_hand(x):
        cut = torch.fake_quantize_per_tensor_affine(x * 1, float(scale), int(zero_point), 0, 255)
        return F.linear(cut, W)

    weight = nn.Parameter(W)
    with amanda.apply(tool):
        _, found = (with_gradients(lambda x: linear(x, weight), x) for x in (X, X * 2))
    assert_equal(found, with_gradients(by_hand, X * 2))
    assert 0 < (found[1] == 0).sum() < X.numel()


def test_ties_go_to_the_even_integer():
    tool = Quantize(0, "minmax", activation_bits=4, symmetric_activations=True, calibrate=1)
    edge, weight = torch.full((3, 5), 7.5), nn.Parameter(torch.eye(5))
    with amanda.apply(tool):
        for x in (edge, TIES):  # the first of which makes the scale 1
            found = linear(x, weight)
    assert found.unique().tolist() == [-8, -6, -4, -2, 0, 2, 4, 6]


def test_half_precision_is_computed_in_single():
    x, w = X.half(), W.half()
    found = under(Quantize(), lambda w: F.linear(x, w), w)
    assert found[0].dtype == torch.float16
    rows = w.float()
    scale, zero_point = settings(rows.amin(1), rows.amax(1), (-128, 127), True)
    rounded = torch.fake_quantize_per_channel_affine(w, scale, zero_point, 0, -128, 127)
    assert torch.equal(found[0], F.linear(x, rounded))


def test_an_empty_tensor_stays_as_it_is():
    for tool in (Quantize(activations="dynamic"), QuantizeAware()):
        with amanda.apply(tool):
            assert F.linear(torch.ones(0, 5), W).shape == (0, 4)


# Training


def test_a_training_with_moving_ranges():
    tool = QuantizeAware(averaging=0.5)
    w = nn.Parameter(W.clone())
    average = None
    with amanda.apply(tool):
        for x in (X, X * 3, X - 1):
            now = x.min(), x.max()
            average = average or now
            average = [a + np.float32(0.5) * (n - a) for a, n in zip(average, now, strict=True)]
            w.grad = None
            y = linear(x, w)
            y.square().sum().backward()
            with amanda.disabled():
                scale, zero_point = map(float, settings(*average, (0, 255), False))

                def by_hand(w, x=x, scale=scale, zero_point=int(zero_point)):
                    x = torch.fake_quantize_per_tensor_affine(x, scale, zero_point, 0, 255)
                    return F.linear(x, by_channel(w, (-128, 127)))

                assert_equal([y.detach(), w.grad], with_gradients(by_hand, w))
            with torch.no_grad():
                w -= 0.01 * w.grad


@pytest.mark.parametrize("ranges", ["moving", "learned"])
@pytest.mark.parametrize("wrong", [torch.inf, torch.nan])
def test_a_step_that_overflows_leaves_ranges_as_they_are(ranges, wrong):
    tool, x, layer = QuantizeAware(4, 4, ranges), X.clone().requires_grad_(), nn.Linear(*W.T.shape)

    def step(scale=1.0, of_loss=1.0):
        (layer(x * scale).sum() * of_loss).backward()
        return [row.scale for row in tool.rows() if row.scale]

    with amanda.apply(tool):
        step(wrong)  # which is nothing to begin with
        step()
        before = step()
        assert np.isfinite(np.concatenate(before)).all()
        after = step(of_loss=wrong) if ranges == "learned" else step(wrong, wrong)
        assert after == before


@pytest.mark.parametrize("ranges", ["moving", "learned"])
def test_frozen_ranges_stay_as_they_are(ranges):
    tool = QuantizeAware(ranges=ranges)
    x, w = nn.Parameter(X.clone()), nn.Parameter(W.clone())
    scales = []
    with amanda.apply(tool):
        for execution in range(5):
            if execution == 3:
                tool.freeze()
            linear(x * (1 + execution), w).square().sum().backward()
            scales.append({row.input: row.scale for row in tool.rows()})
    assert scales[2]["A"] != scales[1]["A"]
    assert scales[2]["A"] == scales[3]["A"] == scales[4]["A"]
    assert scales[3]["B"] == scales[4]["B"] != None  # noqa: E711


def test_a_training_that_learns_scales_as_lsq_does():
    tool = QuantizeAware(3, 3, "learned", per_channel=False, learning_rate=0.001)
    x = nn.Parameter(X.abs())  # whose integers are from 0 to 7
    w, expected_w = nn.Parameter(W.clone()), nn.Parameter(W.clone())
    scales = {
        name: nn.Parameter(2 * t.detach().abs().mean().reshape(1) / high**0.5)
        for name, t, high in (("A", x, 7), ("B", w, 3))
    }

    def by_hand(t, scale, low, high):
        factor = (t.numel() * high) ** -0.5
        return torch._fake_quantize_learnable_per_tensor_affine(
            t, scale, torch.zeros(1), low, high, factor
        )

    with amanda.apply(tool):
        for step in range(5):
            x.grad = w.grad = None
            y = linear(x, w)
            if step == 0:  # whose activations the scale begins with
                continue
            y.square().sum().backward()
            with amanda.disabled():
                rounded = by_hand(x, scales["A"], 0, 7), by_hand(expected_w, scales["B"], -4, 3)
                expected = F.linear(*rounded)
                trained = [expected_w, *scales.values()]
                slopes = torch.autograd.grad(expected.square().sum(), trained)
                torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
                torch.testing.assert_close(w.grad, slopes[0], rtol=1e-4, atol=1e-4)
            with torch.no_grad():
                w -= 0.001 * w.grad
                for t, slope in zip(trained, slopes, strict=True):
                    t -= 0.001 * slope
    for row in tool.rows():
        assert row.scale == [pytest.approx(scales[row.input].item(), rel=1e-4)]


# What cannot be done


def test_an_operator_that_runs_first_after_calibration_is_refused():
    tool = Quantize(activations="minmax")
    model = nn.ModuleDict({"seen": nn.Linear(5, 5), "new": nn.Linear(5, 5)})
    with amanda.apply(tool):
        model["seen"](X)
        tool.freeze()
        with pytest.raises(amanda.UnsupportedError, match=r"A of .*linear.*ignored="):
            model["new"](X)


def test_freezing_what_observed_nothing_is_an_error():
    with pytest.raises(RuntimeError, match="no activation was observed"):
        Quantize(activations="mse").freeze()


def test_a_sparse_operand_is_refused():
    with (
        amanda.apply(Quantize(0, "dynamic")),
        pytest.raises(amanda.UnsupportedError, match=r"Quantize: .* as a sparse tensor"),
    ):
        torch.sparse.mm(X.to_sparse(), W.T)


def test_an_operator_that_hides_its_operands_is_refused():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with amanda.apply(Quantize()), torch.no_grad():
        with pytest.raises(amanda.UnsupportedError, match="set_fastpath_enabled"):
            layer(torch.ones(1, 3, 8))
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            layer(torch.ones(1, 3, 8))
        finally:
            torch.backends.mha.set_fastpath_enabled(True)


def test_both_directions_of_a_recurrent_layer_are_quantized():
    layer = nn.LSTM(5, 4, bidirectional=True)
    tool = Quantize(4)
    with amanda.apply(tool), torch.no_grad():
        found, _ = layer(X)
    with torch.no_grad():
        for name, weight in layer.named_parameters():
            if name.startswith("weight"):
                weight.copy_(by_channel(weight, (-8, 7)))
        assert torch.equal(found, layer(X)[0])
    assert [row.input for row in tool.rows()] == ["W[0]", "W[1]", "R[0]", "R[1]"]


@pytest.mark.parametrize("ignored", [[], [""]])
def test_a_recurrent_network_of_several_layers_is_refused_or_ignored(ignored):
    network = nn.LSTM(5, 4, num_layers=2)
    with amanda.apply(Quantize(4, ignored=ignored)):
        if ignored:
            network(X)
            return
        with pytest.raises(amanda.UnsupportedError, match="modules of one layer"):
            network(X)


def test_values_that_are_no_numbers_cannot_be_calibrated_by():
    error = pytest.raises(amanda.RoutineError, match="infinite or no numbers")
    with amanda.apply(Quantize(activations="minmax")), error:
        F.linear(X / 0, W)


def test_operators_that_add_to_a_product_at_once_are_quantized():
    bias, left, right = torch.randn(2, 6, 4), X.expand(2, 6, 5), W.T.expand(2, 5, 4)
    with amanda.apply(Quantize(0, "dynamic", activation_bits=4)):
        found = torch.baddbmm(bias, left, right), torch.addbmm(bias[0], left, right)
        found = *found, torch.addmv(bias[0, :, 0], X, W[0])
        found = *found, bias.clone().baddbmm_(left, right)
    left, right = by_tensor(left, (0, 15)), by_tensor(right, (0, 15))
    expected = torch.baddbmm(bias, left, right), torch.addbmm(bias[0], left, right)
    vector = by_tensor(W[0], (0, 15))
    expected = *expected, torch.addmv(bias[0, :, 0], left[0], vector)
    assert_equal(found, (*expected, expected[0]))


def test_experts_of_a_mixture_are_quantized_as_weights():
    weight, x = torch.nn.Parameter(torch.randn(2, 16, 8).bfloat16()), torch.randn(16, 8).bfloat16()
    ends = torch.tensor([8, 16], dtype=torch.int32)
    tool = Quantize(4)
    with amanda.apply(tool):
        found = F.grouped_mm(x, weight.mT, offs=ends)
    (row,) = tool.rows()
    scale = weight.detach().float().abs().amax((0, 2)) / 7.5
    assert torch.equal(torch.tensor(row.scale), scale)
    rounded = torch.fake_quantize_per_channel_affine(
        weight.detach().float(), scale, torch.zeros(16), 1, -8, 7
    )
    assert torch.equal(found, F.grouped_mm(x, rounded.bfloat16().mT, offs=ends))


def test_a_weight_that_an_embedding_shares_is_not_rounded_for_good():
    embedding, head, tool = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False), Quantize(4)
    head.weight = embedding.weight
    with amanda.apply(tool):
        head(embedding(torch.arange(3)))
    with pytest.raises(amanda.UnsupportedError, match="embedding"):
        tool.make_permanent(nn.ModuleList([embedding, head]))


def test_what_is_ignored_stays_as_it_is():
    model = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5))
    tool = Quantize(2, ignored=["1"])
    with amanda.apply(tool):
        model(X)
    assert [row.scope for row in tool.rows()] == ["0"]


@pytest.mark.parametrize(
    "options",
    [
        {"bits": 1},
        {"bits": 9},
        {"percentile": 0, "activations": "percentile"},
        {"averaging": 2, "activations": "moving"},
        {"calibrate": 0},
        {"calibrate": 2},  # of no activations
        {"bits": 0},  # and no activations
        {"ops": ["Relu"]},
        {"activations": "static"},
        {"arithmetic": "jax"},
        {"out": "scales.txt"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_an_option_out_of_range_is_an_error(options):
    with pytest.raises(ValueError, match=next(iter(options)).replace("out", "ending")):
        Quantize(**options)


@pytest.mark.parametrize(
    ("tool", "options"),
    [
        (Quantize, {"percentile": 99, "activations": "minmax"}),
        (Quantize, {"averaging": 0.1, "activations": "percentile"}),
        (Quantize, {"activation_bits": 4}),
        (Quantize, {"symmetric_activations": False}),
        (QuantizeAware, {"averaging": 0.1, "ranges": "learned"}),
        (QuantizeAware, {"learning_rate": 0.1}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else next(iter(value)),
)
def test_an_option_that_would_change_nothing_is_an_error(tool, options):
    with pytest.raises(ValueError, match=f"{next(iter(options))}=.* has no effect"):
        tool(**options)


def test_a_model_that_multiplies_integers_already_is_said_once_to_be_left_alone():
    weight = nn.Parameter(torch.ones(16, 8, dtype=torch.int8), requires_grad=False)
    tool = Quantize(activations="dynamic")

    def products():
        for _ in range(2):
            with amanda.apply(tool):
                torch._int_mm(torch.ones(32, 16, dtype=torch.int8), weight)

    with pytest.warns(amanda.AmandaWarning, match="Quantize leaves alone _int_mm.*before") as said:
        products()
    assert len(said) == 1
    assert not tool.rows()


@pytest.mark.parametrize("tool", [Quantize, VectorWisePruning, Faults])
def test_weights_that_a_quantized_model_has_packed_are_said_once_to_be_left_alone(tool):
    packed, tool = torch.ops.quantized.linear_prepack_fp16(torch.ones(2, 3), None), tool()
    x = torch.ones(4, 3)

    def products():
        for _ in range(2):
            with amanda.apply(tool):
                torch.ops.quantized.linear_dynamic_fp16(x, packed)

    match = "leaves alone quantized::linear_dynamic_fp16: its weights are packed"
    with pytest.warns(amanda.AmandaWarning, match=match) as said:
        products()
    assert len(said) == 1
