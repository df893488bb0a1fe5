"""Pruning by tools on PyTorch, against the same methods by hand."""

import warnings

import amanda
import numpy as np
import pytest
import torch
from amanda_tools.pruning import (
    ActivationPruning,
    AttentionPruning,
    DynamicChannelPruning,
    MagnitudePruning,
    TileWisePruning,
    VectorWisePruning,
)
from amanda_tools.quantization import Quantize
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize, prune

X = torch.randn(6, 4, 6, 6, generator=torch.Generator().manual_seed(1))
Y = torch.arange(6) % 3


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)
    )


def trained(model, steps=3, before=lambda step: None):
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(steps):
        before(step)
        optimizer.zero_grad()
        functional.cross_entropy(model(X), Y).backward()
        optimizer.step()
    return model


def layers(model):
    return [module for module in model if hasattr(module, "weight")]


@pytest.mark.parametrize(
    "tool",
    [
        MagnitudePruning(0.5),
        MagnitudePruning(0.5, "filter"),
        MagnitudePruning(0.6, budget="global"),
        TileWisePruning(0.5, tile=4),
        VectorWisePruning(),
    ],
    ids=["element", "filter", "global", "tiles", "vectors"],
)
def test_training_is_that_of_masks_by_hand(tool):
    model, by_hand = network(), network()
    group = [layer.weight.detach().numpy() for layer in layers(by_hand)]
    if isinstance(tool, MagnitudePruning) and tool.schedule.sparsity == 0.6:
        masks = tool.masks(group, 0.6)
    elif isinstance(tool, TileWisePruning):  # its budget is of all layers
        masks = tool.masks(group, 0.5)
    else:
        masks = [tool.masks([weight], 0.5)[0] for weight in group]
    for layer, mask in zip(layers(by_hand), masks, strict=True):
        prune.custom_from_mask(layer, "weight", torch.tensor(mask))
    trained(by_hand)
    with amanda.apply(tool):
        if tool.sparsity == 0.6 or isinstance(tool, TileWisePruning):
            with torch.no_grad():
                model(X)  # masks of all layers need all of them
        trained(model)
        under_tool = model(X)
    for layer, mask, reference in zip(layers(model), masks, layers(by_hand), strict=True):
        assert torch.equal(layer.weight, reference.weight_orig)
        assert (reference.weight_mask.numpy() == mask).all()
    assert torch.equal(under_tool, by_hand(X))
    tool.make_permanent(model)
    assert torch.equal(model(X), under_tool)
    assert [float((layer.weight == 0).sum()) for layer in layers(model)] == [
        row.zeros for row in tool.rows()
    ]


def test_gradual_pruning_chooses_masks_by_the_weights_of_the_time():
    model, by_hand, tool = network(), network(), MagnitudePruning(0.8, begin=1, end=5, every=2)
    with amanda.apply(tool):
        trained(model, 8, lambda step: step and tool.step(model))
    weights = {layer: layer.weight.detach().clone() for layer in layers(by_hand)}
    momenta = {layer: torch.zeros_like(layer.weight) for layer in weights}
    masks = {layer: torch.ones_like(layer.weight) for layer in weights}
    biases = [parameter for name, parameter in by_hand.named_parameters() if "bias" in name]
    optimizer = torch.optim.SGD(biases, 0.1, momentum=0.9)
    for step in range(8):
        if step in (1, 3, 5):
            sparsity = 0.8 * (1 - (1 - (step - 1) / 4) ** 3)
            for layer, weight in weights.items():
                count = round(sparsity * weight.numel())
                order = weight.abs().flatten().argsort(stable=True)
                masks[layer] = torch.ones(weight.numel()).index_fill(0, order[:count], 0)
                masks[layer] = masks[layer].view_as(weight)
        for layer, weight in weights.items():
            layer.weight.data = weight * masks[layer]
            layer.weight.grad = None
        optimizer.zero_grad()
        functional.cross_entropy(by_hand(X), Y).backward()
        optimizer.step()
        for layer, weight in weights.items():
            momenta[layer] = 0.9 * momenta[layer] + layer.weight.grad * masks[layer]
            weight -= 0.1 * momenta[layer]
    for layer, weight in zip(layers(model), weights.values(), strict=True):
        # the optimizer multiplies and adds in one rounding where the processor can
        torch.testing.assert_close(layer.weight.detach(), weight, rtol=0, atol=1e-6)
    assert tool.totals()["sparsity"] == pytest.approx(0.8, abs=2e-3)


def test_a_schedule_that_nobody_follows_is_warned_of():
    model, tool = nn.Linear(4, 3), MagnitudePruning(0.5, begin=2, end=6)
    message = r"from iteration 2 to 6.*call step\(model\)"
    with pytest.warns(amanda.AmandaWarning, match=message), amanda.apply(tool):
        model(torch.randn(2, 4))


class Added(nn.Linear):
    """Adds an adapter of low rank to its weight."""

    def __init__(self):
        super().__init__(4, 4)
        self.down, self.up = (nn.Parameter(torch.randn(*shape)) for shape in ((2, 4), (4, 2)))

    def forward(self, x):
        return functional.linear(x, self.weight + self.up @ self.down, self.bias)


COMPUTED = {
    "weight_norm": lambda: parametrizations.weight_norm(nn.Linear(4, 4)),
    "spectral_norm": lambda: nn.utils.spectral_norm(nn.Linear(4, 4, bias=False)),
    "adapter": Added,
}


@pytest.mark.parametrize("tool", [VectorWisePruning, Quantize])
@pytest.mark.parametrize("layer", COMPUTED.values(), ids=COMPUTED)
def test_a_weight_that_is_computed_is_left_alone_and_warned_of_once(layer, tool):
    model, x, active = nn.Sequential(layer(), nn.Linear(4, 4)).eval(), torch.randn(2, 4), tool()
    with torch.no_grad():
        named = rf"{tool.__name__} leaves alone 0/linear:"
        with pytest.warns(amanda.AmandaWarning, match=named), amanda.apply(active):
            model(x)
        with warnings.catch_warnings(), amanda.apply(active):
            warnings.simplefilter("error")
            model(x)
    ids = [row.id for row in active.rows()]
    assert "1/linear" in ids
    assert "0/linear" not in ids


class Low(nn.Module):
    """A parametrization of the program's own, which multiplies parameters."""

    def __init__(self):
        super().__init__()
        self.down, self.up = (nn.Parameter(torch.randn(*shape)) for shape in ((2, 4), (4, 2)))

    def forward(self, weight):
        return weight + self.up @ self.down


def adapted():
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Low())
    return layer


COMPUTING = {
    "spectral_norm": lambda: parametrizations.spectral_norm(nn.Linear(4, 4)),
    "spectral_norm by a hook": lambda: nn.utils.spectral_norm(nn.Linear(4, 4)),
    "adapted": adapted,
}


@pytest.mark.parametrize("tool", [VectorWisePruning, Quantize])
@pytest.mark.parametrize("layer", COMPUTING.values(), ids=COMPUTING)
def test_what_computes_a_weight_is_left_alone_as_that_is(layer, tool):
    model, x, active = layer().eval(), torch.randn(2, 4), tool()
    expected = model(x)
    with pytest.warns(amanda.AmandaWarning, match="leaves alone linear:"), amanda.apply(active):
        found = model(x)
    assert torch.equal(found, expected)
    assert not active.rows()


def test_a_product_of_activations_and_a_weight_that_is_pruned_are_not_warned_of():
    model, x = parametrizations.weight_norm(nn.Conv2d(4, 4, 3)), torch.randn(1, 4, 3, 3)
    parametrize.remove_parametrizations(model, "weight")
    tool = MagnitudePruning(0.5)
    with warnings.catch_warnings(), amanda.apply(tool):
        warnings.simplefilter("error")
        found = model(x).flatten(2)
        found @ found.mT
    assert len(tool.rows()) == 1


def test_convolutions_whose_weights_are_computed_are_named_as_far_as_five_tell():
    model = nn.Sequential(*(parametrizations.weight_norm(nn.Conv2d(1, 1, 1)) for _ in range(7)))
    message = r"DynamicChannelPruning leaves alone 0/conv2d, .* 4/conv2d and 2 more:"
    with pytest.warns(amanda.AmandaWarning, match=message), amanda.apply(DynamicChannelPruning()):
        model(torch.ones(1, 1, 1, 1))


def test_what_is_not_frozen_goes_on_learning():
    model, tool = nn.Linear(4, 3), MagnitudePruning(0.5, frozen=False)
    x = torch.randn(2, 4)
    with amanda.apply(tool):
        model(x).sum().backward()
    assert torch.equal(model.weight.grad, x.sum(0).expand(3, 4))


@pytest.mark.parametrize("kind", [nn.ConvTranspose2d, "matmul", "transposed"])
def test_outputs_are_told_from_inputs_in_every_layout(kind):
    tool = MagnitudePruning(0.5, "filter")
    weight = torch.rand(4, 2) + torch.tensor([10.0, 0.0])  # the second output is the least
    if kind is nn.ConvTranspose2d:
        model, x = kind(4, 2, 3), torch.randn(1, 4, 5, 5)
        model.weight.data[:, 0] += 10
        masked, pruned = lambda: model.weight[:, 1], lambda: model.weight[:, 0]
    else:
        model, x = nn.Module(), torch.randn(3, 4)
        model.weight = nn.Parameter(weight if kind == "matmul" else weight.T.contiguous())
        product = {"matmul": lambda x: x @ model.weight, "transposed": lambda x: x @ model.weight.T}
        model.forward = product[kind]
        seen = (lambda: model.weight) if kind == "matmul" else (lambda: model.weight.T)
        masked, pruned = lambda: seen()[:, 1], lambda: seen()[:, 0]
    with amanda.apply(tool):
        model(x)
    tool.make_permanent(model)
    assert not masked().any()
    assert pruned().all()


def of_experts(x, weight):  # each expert takes eight rows
    return functional.grouped_mm(x, weight.mT, offs=torch.tensor([8, 16], dtype=torch.int32))


@pytest.mark.parametrize(
    "product",
    [
        of_experts,
        lambda x, weight: x.view(2, 8, 8) @ weight.mT,
        lambda x, weight: torch.zeros(2, 8, 16).to(x).baddbmm_(x.view(2, 8, 8), weight.mT),
    ],
    ids=["experts", "matmul", "baddbmm_"],
)
def test_each_matrix_of_several_has_outputs_of_its_own(product):
    model, tool = nn.Module(), MagnitudePruning(0.25, "filter")
    model.weight = nn.Parameter(torch.ones(2, 16, 8).bfloat16())
    model.weight.data[0, :8] = 0.5  # a quarter of all outputs, those of the first matrix alone
    x = torch.randn(16, 8).bfloat16()
    expected = product(x, model.weight.detach().masked_fill(model.weight.detach() < 1, 0))
    with amanda.apply(tool):
        found = product(x, model.weight)
        found.float().sum().backward()
    assert torch.equal(found.flatten(), expected.flatten())
    assert torch.equal(model.weight.grad == 0, model.weight < 1)
    tool.make_permanent(model)
    assert torch.equal(model.weight == 0, model.weight.grad == 0)


def test_a_vector_is_pruned_along_its_inputs():
    vector, tool = nn.Parameter(torch.tensor([4.0, 1.0, 3.0, 2.0])), VectorWisePruning()
    with amanda.apply(tool):
        (torch.ones(3, 4) @ vector).sum().backward()
    assert vector.grad.tolist() == [3, 0, 3, 0]


def test_layers_that_have_no_groups_are_left_alone():
    model, tool = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 2)), VectorWisePruning()
    with amanda.apply(tool):
        model(torch.randn(2, 6))
    (row,) = tool.rows()
    assert (row.scope, row.shape, row.elements, row.zeros) == ("1", [2, 8], 16, 8)


@pytest.mark.parametrize("lookup", [nn.Embedding, nn.EmbeddingBag])
def test_an_embedding_that_shares_a_weight_is_not_pruned_unnoticed(lookup):
    embedding, head, tool = lookup(8, 4), nn.Linear(4, 8, bias=False), MagnitudePruning(0.5)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, head)
    with amanda.apply(tool):
        model(torch.tensor([[1, 2]]))
    with pytest.raises(amanda.UnsupportedError, match="another operator is given it otherwise"):
        tool.make_permanent(model)


class OfOneWeight(nn.Module):
    """Computes with a weight in two forms."""

    def __init__(self, weight, function):
        super().__init__()
        self.weight, self.forward = nn.Parameter(torch.tensor(weight)), function


PARTS = [[4.0, 1.0], [1.0, 4.0], [1.0, 4.0], [4.0, 1.0]]


def test_each_part_of_a_weight_that_is_split_has_a_mask_of_its_own():
    def halves(x):
        first, second = model.weight.chunk(2)
        return torch.cat([functional.linear(x, first), functional.linear(x, second)], 1)

    model, tool = OfOneWeight(PARTS, halves), MagnitudePruning(0.5)
    with amanda.apply(tool):
        found = model(torch.tensor([[1.0, 10.0]]))
    assert found.tolist() == [[4, 40, 40, 4]]
    tool.make_permanent(model)
    assert model.weight.tolist() == [[4, 0], [0, 4], [0, 4], [4, 0]]


@pytest.mark.parametrize("weight", [[[4.0, 3.0], [1.0, 2.0]], PARTS], ids=["square", "high"])
def test_a_weight_that_is_also_given_transposed_is_pruned_alike(weight):
    model = OfOneWeight(weight, lambda x: x @ model.weight.T @ model.weight)
    tool, x = MagnitudePruning(0.5), torch.tensor([[1.0, 10.0]])
    with amanda.apply(tool):
        found = model(x)
    kept = torch.where(model.weight >= 3, model.weight, 0.0)
    assert torch.equal(found, x @ kept.T @ kept)
    tool.make_permanent(model)
    assert torch.equal(model.weight, kept)


def gradients(function, tool=None, inputs=(X,)):
    """What a function gives, and the gradients of its inputs, for a loss that is no sum."""
    given = [tensor.clone().requires_grad_() for tensor in inputs]
    with amanda.apply(*([tool] if tool else [])):
        found = function(*given)
        found.square().sum().backward()
    return [found.detach(), *(tensor.grad for tensor in given)]


@pytest.mark.parametrize("options", [{"threshold": 0.4}, {"keep": 0.25}])
@pytest.mark.parametrize("function", [torch.relu, torch.tanh])
def test_activations(function, options):
    def by_hand(x):
        y = function(x)
        limit = options.get("threshold")
        if limit is None:
            flat = y.detach().abs().flatten(1)
            limit = flat.topk(round(0.25 * flat.shape[1])).values[:, -1][:, None, None, None]
        return y * (y.detach().abs() >= limit)

    tool = ActivationPruning(**options, count=True)
    found = gradients(function, tool)
    assert all(map(torch.equal, found, gradients(by_hand)))
    (row,) = tool.rows()
    assert (row.elements, row.zeros) == (X.numel(), int((found[0] == 0).sum()))


@pytest.mark.parametrize("options", [{"threshold": 2.0}, {"keep": 0.5}])
def test_what_is_no_number_is_not_hidden(options):
    x = torch.tensor([[1.0, torch.nan, -2.0, 3.0]])
    kept = [0.0, torch.nan, 0.0, 3.0] if "threshold" in options else [1.0, torch.nan, 0.0, 3.0]
    with amanda.apply(ActivationPruning(**options)):
        torch.testing.assert_close(torch.relu(x), torch.tensor([kept]), equal_nan=True)
    limit = {"topk": 2} if "keep" in options else {"threshold": 0.2}
    with amanda.apply(AttentionPruning(**limit)):
        assert torch.softmax(x[None], -1).isnan().all()


@pytest.mark.parametrize("shape", [(), (4,), (0, 4), (3, 0)])
def test_an_example_without_several_activations_stays_as_it_is(shape):
    with amanda.apply(ActivationPruning(keep=0.5)):
        assert torch.equal(torch.relu(torch.ones(shape)), torch.ones(shape))


def test_what_is_not_counted_is_not_said_to_be_nothing():
    tool = ActivationPruning(keep=0.25)
    gradients(torch.relu, tool)
    assert tool.found() == "1 operators, whose zeros count=True counts"


Q, K, V = (torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(i)) for i in range(3))


def attention(q, k, v, mask=None, causal=False, limit=None):
    """Attention by hand, with its probabilities pruned."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        scores = scores + torch.full((5, 5), -torch.inf).triu(1)
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        )
    probabilities = torch.softmax(scores, -1)
    if limit is not None:
        probabilities = probabilities * limit(probabilities.detach())
    return probabilities @ v


LIMITS = {
    "threshold": (AttentionPruning(threshold=0.2), lambda p: p >= 0.2),
    "topk": (AttentionPruning(topk=2), lambda p: p >= p.topk(2).values[..., -1:]),
}
MASKS = {
    "none": {},
    "causal": {"causal": True},
    "bool": {"mask": torch.rand(5, 5) > 0.3},
    "float": {"mask": torch.randn(2, 1, 5, 5)},
}


@pytest.mark.parametrize("masked", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize(("tool", "limit"), LIMITS.values(), ids=LIMITS)
def test_attention_is_pruned_alike_fused_and_not(tool, limit, masked):
    masked = dict(masked)
    if "mask" in masked and masked["mask"].dtype == torch.bool:
        masked["mask"] = masked["mask"] | torch.eye(5, dtype=torch.bool)

    def fused(q, k, v):
        mask, causal = masked.get("mask"), masked.get("causal", False)
        return functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)

    expected = gradients(lambda *qkv: attention(*qkv, **masked, limit=limit), None, (Q, K, V))
    for function in (fused, lambda *qkv: attention(*qkv, **masked)):
        for found, by_hand in zip(gradients(function, tool, (Q, K, V)), expected, strict=True):
            torch.testing.assert_close(found, by_hand, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("tool", "limit"), LIMITS.values(), ids=LIMITS)
def test_heads_that_share_keys_are_pruned_each_by_itself(tool, limit):
    queries = torch.cat([Q, Q.flip(2)], 1).detach()  # of neighbouring heads, which share keys

    def grouped(q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    def spelled_out(q, k, v):
        return attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), limit=limit)

    found = gradients(grouped, tool, (queries, K, V))
    for ours, by_hand in zip(found, gradients(spelled_out, None, (queries, K, V)), strict=True):
        torch.testing.assert_close(ours, by_hand, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fused_attention_sees_what_the_mask_of_its_framework_lets_it_see(dtype):
    mask = torch.rand(2, 1, 5, 5) > 0.3
    mask[1, :, 2] = False  # a query of padding, which sees no key
    queries, keys, values = (x.detach().to(dtype) for x in (Q, K, V))
    given = [(queries, keys, values, m) for m in (mask, torch.where(mask, 0.0, -torch.inf))]
    given.append(
        (queries[:, 0, :3], keys[:, 0], values[:, 0], None)
    )  # of one head, without an axis
    for q, k, v, masked in given:
        masked = masked if masked is None or masked.dtype == torch.bool else masked.to(dtype)
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        plain = functional.scaled_dot_product_attention(*inputs, masked)
        expected = torch.autograd.grad(plain.float().square().sum(), inputs)
        with amanda.apply(AttentionPruning(threshold=0.0)):
            found = functional.scaled_dot_product_attention(*inputs, masked)
            gradient = torch.autograd.grad(found.float().square().sum(), inputs)
        rounding = 0.05 if dtype == torch.bfloat16 else 1e-5
        for ours, theirs in zip((found, *gradient), (plain, *expected), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=rounding, atol=rounding)


@pytest.mark.parametrize(
    "tool", [MagnitudePruning(), ActivationPruning(keep=0.5), AttentionPruning(topk=1)], ids=repr
)
def test_a_layer_that_hides_what_is_pruned_is_refused(tool):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with (
        amanda.apply(tool),
        torch.no_grad(),
        pytest.raises(amanda.UnsupportedError, match="set_fastpath_enabled"),
    ):
        layer(torch.ones(1, 3, 8))


def gated(convolution, x, phi, rho, keep):
    """FBS by hand."""
    saliency = torch.relu(x.abs().mean((2, 3)) @ phi + rho)
    most = saliency.detach().topk(keep).values[:, -1:]
    kept = saliency * (saliency.detach() >= most)
    return convolution(x) * kept[:, :, None, None], saliency


def test_dynamic_channels_and_their_gate_are_trained():
    convolution, tool = (
        nn.Conv2d(4, 8, 3),
        DynamicChannelPruning(0.5, learning_rate=0.1, penalty=0.01),
    )
    with amanda.apply(tool):
        convolution(X)
        phi, rho = (torch.tensor(v, requires_grad=True) for v in map(np.copy, tool.gates[0]))
        for _ in range(3):
            x, plain = (X.clone().requires_grad_() for _ in "12")
            found = convolution(x)
            convolution.zero_grad()
            found.square().sum().backward()
            ours = convolution.weight.grad
            with amanda.disabled():
                by_hand, saliency = gated(convolution, plain, phi, rho, 4)
                convolution.weight.grad = None
                (by_hand.square().sum() + 0.01 * saliency.sum()).backward()
            torch.testing.assert_close(found, by_hand)
            torch.testing.assert_close(x.grad, plain.grad, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(ours, convolution.weight.grad, rtol=1e-4, atol=1e-4)
            for value in (phi, rho):
                value.data -= 0.1 * value.grad / 1000
                value.grad = None
            tool._rate = 0.1 / 1000
            tool.step()
            for value, of_tool in zip((phi, rho), tool.gates[0], strict=True):
                np.testing.assert_allclose(of_tool, value.detach(), rtol=1e-5, atol=1e-6)


def test_dynamic_channels_of_half_precision_are_those_of_single():
    convolution, tool = nn.Conv2d(4, 8, 3, groups=2), DynamicChannelPruning(0.5, learning_rate=0.1)
    wide, other = nn.Conv2d(4, 8, 3, groups=2), DynamicChannelPruning(0.5, learning_rate=0.1)
    convolution.bfloat16()
    wide.load_state_dict(convolution.state_dict())
    x = X.bfloat16()
    with amanda.apply(tool):
        found = convolution(x)
        found.float().sum().backward()
        tool.step()
    with amanda.apply(other):
        expected = wide(x.float())
        expected.sum().backward()
        other.step()
    torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.02)
    for one, single in zip(tool.gates[0], other.gates[0], strict=True):
        np.testing.assert_allclose(one, single, rtol=0.02, atol=0.2)
