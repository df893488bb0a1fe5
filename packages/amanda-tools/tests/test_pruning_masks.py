"""The masks that weights are pruned by, against plain references and published implementations."""

import itertools

import numpy as np
import pytest
import torch
from amanda_tools.pruning import (
    MagnitudePruning,
    Schedule,
    TileWisePruning,
    VectorWisePruning,
)
from torch.ao.pruning import WeightNormSparsifier
from torch.nn.utils import prune

SHAPES = [(8, 12), (16, 4), (6, 4, 3, 3), (5, 8, 1, 3)]


def weights(shapes=SHAPES, seed=0):
    random = np.random.default_rng(seed)
    return [
        random.standard_normal(shape).astype("float32") * (i + 1) for i, shape in enumerate(shapes)
    ]


def units_of(weight, granularity):
    """Index of each unit's elements, in order."""
    axes = {"element": weight.ndim, "row": weight.ndim - 1, "filter": 1}[granularity]
    return list(np.ndindex(weight.shape[:axes]))


def enough(sizes, share):
    """How many units go, in order: those of one size as PyTorch rounds, others to the nearest."""
    if len(set(sizes)) == 1:
        return round(share * len(sizes))
    wanted, taken, count = share * sum(sizes), 0, 0
    while count < len(sizes) and taken + sizes[count] / 2 < wanted:
        taken, count = taken + sizes[count], count + 1
    return count


def by_magnitude(group, sparsity, granularity):
    """Units from the least mean magnitude on go until there are enough: a plain loop."""
    ranked = sorted(
        (np.abs(weight[unit]).mean(dtype="float64"), i, unit, weight[unit].size)
        for i, weight in enumerate(group)
        for unit in units_of(weight, granularity)
    )
    masks = [np.ones(weight.shape, bool) for weight in group]
    for _, i, unit, _ in ranked[: enough([size for *_, size in ranked], sparsity)]:
        masks[i][unit] = False
    return masks


@pytest.mark.parametrize("granularity", ["element", "row", "filter"])
@pytest.mark.parametrize("sparsity", [0, 0.3, 0.71])
def test_magnitude_in_each_layer_and_in_all(granularity, sparsity):
    tool, group = MagnitudePruning(sparsity, granularity), weights()
    for given in ([w] for w in group):
        assert (
            tool.masks(given, sparsity)[0] == by_magnitude(given, sparsity, granularity)[0]
        ).all()
    found, expected = tool.masks(group, sparsity), by_magnitude(group, sparsity, granularity)
    assert all((a == b).all() for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("sparsity", [0.25, 0.5, 0.9])
@pytest.mark.parametrize("shape", SHAPES)
def test_magnitude_is_that_of_torch(shape, sparsity):
    (weight,) = weights([shape])
    for granularity, method in (
        ("element", lambda module: prune.l1_unstructured(module, "weight", sparsity)),
        ("filter", lambda module: prune.ln_structured(module, "weight", sparsity, n=1, dim=0)),
    ):
        module = torch.nn.Module()
        module.weight = torch.nn.Parameter(torch.tensor(weight))
        method(module)
        (mask,) = MagnitudePruning(sparsity, granularity).masks([weight], sparsity)
        assert (mask == module.weight_mask.numpy()).all()


def test_a_global_budget_is_that_of_torch():
    group, modules = weights(), []
    for weight in group:
        module = torch.nn.Module()
        module.weight = torch.nn.Parameter(torch.tensor(weight))
        modules.append((module, "weight"))
    prune.global_unstructured(modules, prune.L1Unstructured, amount=0.6)
    masks = MagnitudePruning(0.6, budget="global").masks(group, 0.6)
    for mask, (module, _) in zip(masks, modules, strict=True):
        assert (mask == module.weight_mask.numpy()).all()


def tile_wise(group, sparsity, tile):
    """Columns, and then the rows of tiles of the columns that are left, one after the other."""
    part = 1 - (1 - sparsity) ** 0.5
    matrices = [w.reshape(len(w), -1).T for w in group]  # a column for each output
    masks = [np.ones(m.shape, bool) for m in matrices]

    def take(units):
        """Units are (layer, rows, columns)."""
        scores = [np.abs(matrices[i][np.ix_(r, c)]).mean(dtype="float64") for i, r, c in units]
        ranked = [units[at] for at in np.argsort(scores, kind="stable")]
        for i, rows, columns in ranked[: enough([len(r) * len(c) for _, r, c in ranked], part)]:
            masks[i][np.ix_(rows, columns)] = False

    take([(i, range(len(m)), [c]) for i, m in enumerate(matrices) for c in range(m.shape[1])])
    vectors = []
    for i, m in enumerate(matrices):
        left = [c for c in range(m.shape[1]) if masks[i][0, c]]
        tiles = [left[at : at + tile] for at in range(0, len(left), tile)]
        vectors += [(i, [r], columns) for columns in tiles for r in range(len(m))]
    take(vectors)
    return [mask.T.reshape(w.shape) for mask, w in zip(masks, group, strict=True)]


@pytest.mark.parametrize("tile", [1, 3, 128])
def test_tile_wise(tile):
    tool = TileWisePruning(0.6, tile)
    for group in (weights()[:1], weights()):
        found, expected = tool.masks(group, 0.6), tile_wise(group, 0.6, tile)
        assert all((a == b).all() for a, b in zip(found, expected, strict=True))


def exhaustively(matrix, n, m):
    """As ASP does: of all patterns of a group the one that keeps the most magnitude."""
    patterns = np.array([p for p in itertools.product((0, 1), repeat=m) if sum(p) == n])
    groups = np.abs(matrix).reshape(-1, m)
    return patterns[np.argmax(groups @ patterns.T, axis=1)].reshape(matrix.shape).astype(bool)


@pytest.mark.parametrize(("n", "m"), [(2, 4), (1, 4), (4, 8)])
def test_vector_wise_is_the_best_of_all_patterns(n, m):
    matrix, convolution = weights([(6, 16), (6, 8, 3, 3)])
    found = VectorWisePruning(n, m).masks([matrix, convolution], 1 - n / m)
    assert (found[0] == exhaustively(matrix, n, m)).all()
    # as ASP has it, the input channels of a convolution last
    moved = np.ascontiguousarray(convolution.transpose(2, 3, 0, 1))
    assert (found[1].transpose(2, 3, 0, 1) == exhaustively(moved, n, m)).all()


def test_no_method_prunes_what_is_no_number():
    weight = np.array([[np.nan, 4.0, 3.0, 2.0], [1.0, 1.0, 1.0, 1.0]])
    for tool in (VectorWisePruning(), TileWisePruning(0.7, tile=1), MagnitudePruning(0.5)):
        (mask,) = tool.masks([weight], 0.5)
        assert mask[0, 0]


def test_two_of_four_are_those_that_torch_keeps():
    model = torch.nn.Sequential(torch.nn.Linear(16, 8, bias=False))
    sparsifier = WeightNormSparsifier(1.0, (1, 4), zeros_per_block=2)
    sparsifier.prepare(model, [{"tensor_fqn": "0.weight"}])
    sparsifier.step()
    mask = model[0].parametrizations.weight[0].mask.numpy().astype(bool)
    original = model[0].parametrizations.weight.original.detach().numpy()
    assert (VectorWisePruning().masks([original], 0.5)[0] == mask).all()


def test_the_cubic_schedule_is_that_of_its_paper():
    schedule = Schedule(0.8, begin=10, end=50, every=10)
    due = [i for i in range(60) if schedule.is_due(i)]
    assert due == [10, 20, 30, 40, 50]
    for i in due:
        assert schedule.at(i) == pytest.approx(0.8 + (0 - 0.8) * (1 - (i - 10) / 40) ** 3)
    assert schedule.at(9) == schedule.at(10) == 0
    assert schedule.at(29) == schedule.at(20)
    assert schedule.at(1000) == 0.8
    once = Schedule(0.5, begin=3, end=3)
    assert [once.at(i) for i in (2, 3, 4)] == [0, 0.5, 0.5]
    assert [i for i in range(9) if once.is_due(i)] == [3]


@pytest.mark.parametrize(
    ("tool", "options", "message"),
    [
        (MagnitudePruning, {"sparsity": 1}, "sparsity is 1"),
        (MagnitudePruning, {"granularity": "block"}, "granularity is"),
        (MagnitudePruning, {"budget": "model"}, "budget is"),
        (MagnitudePruning, {"every": 0}, "every is 0"),
        (MagnitudePruning, {"every": 2}, "every=2: where all is pruned at once it has no effect"),
        (TileWisePruning, {"tile": 0}, "tile is 0"),
        (VectorWisePruning, {"n": 5}, "of 4 weights 5"),
    ],
)
def test_what_there_is_not_is_named(tool, options, message):
    with pytest.raises(ValueError, match=message):
        tool(**options)
