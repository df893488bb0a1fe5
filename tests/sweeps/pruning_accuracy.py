"""Accuracy on digits after pruning and fine-tuning, by tools and by the same methods by hand.

``python pruning_accuracy.py [SEEDS]`` trains a small convolutional net and a small transformer on
``sklearn.datasets.load_digits`` for each seed. Each is pruned and fine-tuned twice from there: in
plain PyTorch, and under a tool. It prints mean and standard deviation of the accuracies over the
seeds, and the largest difference of any trained weight. What prunes outputs leaves the last layer.
"""

from __future__ import annotations

import copy
import sys

import amanda
import numpy as np
import torch
from amanda_tools import pruning
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional
from torch.nn.utils import prune

EPOCHS, TUNING, BATCH, RATE = 20, 8, 64, 3e-3


class Convolutional(nn.Module):
    """Two convolutions and a linear layer; what is pruned by hand is put in their places."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.head = nn.Linear(512, 10)
        self.activation = torch.relu
        self.gates = [lambda y, x: y, lambda y, x: y]

    def forward(self, x):
        x = x.unflatten(1, (1, 8, 8))
        for gate, layer in zip(self.gates, (self.first, self.second), strict=True):
            x = self.activation(gate(layer(x), x))
        return self.head(functional.max_pool2d(x, 2).flatten(1))


class Transformer(nn.Module):
    """One layer of attention over the eight rows of a digit."""

    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Linear(8, 32), nn.Linear(32, 96), nn.Linear(32, 32)
        self.wide, self.narrow, self.head = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 10)
        self.places = nn.Parameter(torch.randn(8, 32) * 0.1)
        self.activation = torch.relu
        self.attend = functional.scaled_dot_product_attention

    def forward(self, x):
        x = self.embed(x.unflatten(1, (8, 8))) + self.places
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        x = x + self.narrow(self.activation(self.wide(x)))
        return self.head(x.mean(1))


def layers(model):
    """Its convolutions and linear layers, in the order in which they run, the last one last."""
    found = [layer for layer in model.children() if isinstance(layer, (nn.Conv2d, nn.Linear))]
    return sorted(found, key=lambda layer: layer is model.head)


def body(model):
    """The names of all of them but the last."""
    last = layers(model)[-1]
    return [
        name
        for name, layer in model.named_children()
        if layer in layers(model) and layer is not last
    ]


class Data:
    """Digits, split by a seed."""

    def __init__(self, seed):
        digits = load_digits()
        x = torch.tensor(digits.data / 16, dtype=torch.float32)
        parts = train_test_split(x, torch.tensor(digits.target), test_size=0.25, random_state=seed)
        self.x, self.test_x, self.y, self.test_y = parts
        self.seed = seed

    def train(self, model, epochs, after_step=lambda: None):
        """Train by Adam, in an order that depends on the seed alone."""
        random = torch.Generator().manual_seed(self.seed)
        optimizer = torch.optim.Adam(model.parameters(), RATE)
        for _ in range(epochs):
            for batch in torch.randperm(len(self.x), generator=random).split(BATCH):
                optimizer.zero_grad()
                functional.cross_entropy(model(self.x[batch]), self.y[batch]).backward()
                optimizer.step()
                after_step()

    @torch.no_grad()
    def accuracy(self, model):
        """The share of the test digits that a model tells, in percent."""
        return float((model(self.test_x).argmax(1) == self.test_y).float().mean() * 100)


# By hand


def by_masks(choose, due=lambda step: step == 0, head=True):
    """Masks of layers, maybe of the last one, chosen by their weights at the steps that are due."""

    def tune(model, data):
        step, pruned = 0, layers(model)[: None if head else -1]

        def masks():
            nonlocal step
            if due(step):
                weights = [getattr(x, "weight_orig", x.weight).detach() for x in pruned]
                for layer, mask in zip(pruned, choose(weights, step), strict=True):
                    if hasattr(layer, "weight_mask"):
                        layer.weight_mask.copy_(mask)
                    else:
                        prune.custom_from_mask(layer, "weight", mask)
            step += 1

        masks()
        data.train(model, TUNING, masks)

    return tune


def smallest(share):
    """Without the smallest elements of each layer."""

    def choose(weights, step):
        for weight in weights:
            limit = weight.abs().flatten().sort().values[round(share * weight.numel()) - 1]
            yield weight.abs() > limit

    return choose


def smallest_filters(share):
    """Without the filters of least mean magnitude of each layer."""

    def choose(weights, step):
        for weight in weights:
            norms = weight.abs().flatten(1).double().mean(1)
            kept = norms.argsort()[round(share * len(norms)) :]
            mask = torch.zeros_like(weight)
            mask[kept] = 1
            yield mask

    return choose


LAST = 80


def gradual(share):
    """Without the smallest elements of all layers, ever more of them."""

    def choose(weights, step):
        now = share * (1 - (1 - step / LAST) ** 3)
        every = torch.cat([weight.abs().flatten() for weight in weights]).sort().values
        count = round(now * len(every))
        limit = every[count - 1] if count else -1
        return [weight.abs() > limit for weight in weights]

    return choose


def tiles(share, tile):
    """Without the outputs, and then the rows of tiles of those left, of least mean magnitude."""

    def choose(weights, step):
        part, matrices = 1 - (1 - share) ** 0.5, [weight.flatten(1) for weight in weights]
        masks = [torch.ones_like(matrix) for matrix in matrices]
        units = [(i, [c], slice(None)) for i, m in enumerate(matrices) for c in range(len(m))]
        for _ in range(2):
            sizes = [matrices[i][columns, rows].numel() for i, columns, rows in units]
            worth = [float(matrices[i][c, r].abs().double().mean()) for i, c, r in units]
            taken, wanted = 0, part * sum(sizes)
            for at in np.argsort(worth, kind="stable"):
                if taken + sizes[at] / 2 >= wanted:
                    break
                i, columns, rows = units[at]
                masks[i][columns, rows] = 0
                taken += sizes[at]
            units = []
            for i, mask in enumerate(masks):
                for columns in mask[:, 0].nonzero().flatten().split(tile):
                    units += [(i, columns, slice(r, r + 1)) for r in range(mask.shape[1])]
        return [m.view_as(w) for m, w in zip(masks, weights, strict=True)]

    return choose


def two_of_four(weights, step):
    """Two of each four inputs, where they come in fours."""
    for weight in weights:
        if weight.shape[1] % 4:
            yield torch.ones_like(weight)
            continue
        groups = weight.movedim(1, -1).abs().unflatten(-1, (-1, 4))
        mask = torch.zeros_like(groups).scatter_(-1, groups.topk(2).indices, 1)
        yield mask.flatten(-2).movedim(-1, 1)


def sparse_activations(model, data):
    """Only the largest activations of each example."""

    def activation(x):
        y = torch.relu(x)
        size = y[0].numel()
        limit = y.detach().flatten(1).topk(round(0.2 * size)).values[:, -1]
        return y * (y.detach() >= limit.view(-1, *[1] * (y.dim() - 1)))

    model.activation = activation
    data.train(model, TUNING)


def sparse_attention(model, data):
    """Only the largest probabilities of each query."""

    def attend(q, k, v):
        probabilities = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)
        limit = probabilities.detach().topk(2).values[..., -1:]
        return (probabilities * (probabilities.detach() >= limit)) @ v

    model.attend = attend
    data.train(model, TUNING)


def salient_channels(model, data):
    """Feature boosting and suppression, with a gate that is trained by gradient descent."""
    gates = []
    for number, layer in enumerate((model.first, model.second)):
        outputs, inputs = layer.weight.shape[:2]
        random = np.random.default_rng([0, number])
        phi = random.standard_normal((inputs, outputs)) * (2 / inputs) ** 0.5
        gates.append((torch.tensor(phi.astype("float32")), torch.ones(outputs)))
        for value in gates[-1]:
            value.requires_grad_()

    def gate(number):
        def scaled(y, x):
            phi, rho = gates[number]
            saliency = torch.relu(x.abs().mean((2, 3)) @ phi + rho)
            limit = saliency.detach().topk(y.shape[1] // 2).values[:, -1:]
            return y * (saliency * (saliency.detach() >= limit))[:, :, None, None]

        return scaled

    def step():
        for value in (value for pair in gates for value in pair):
            value.data -= 0.01 * value.grad
            value.grad = None

    model.gates = [gate(0), gate(1)]
    data.train(model, TUNING, step)


# By tool


def by_tool(make):
    """The same under a tool."""

    def tune(model, data):
        tool = make(model)
        with amanda.apply(tool):
            with torch.no_grad():
                model(data.x[:1])  # what is pruned of all layers together needs all of them
            if isinstance(tool, pruning.WeightPruning):
                data.train(model, TUNING, lambda: tool.step(model))
            else:
                data.train(model, TUNING, getattr(tool, "step", lambda: None))
            accuracy = data.accuracy(model)
        if isinstance(tool, pruning.WeightPruning):
            tool.make_permanent(model)
            assert data.accuracy(model) == accuracy
        return accuracy

    return tune


METHODS = {
    "element 80%": (lambda model: pruning.MagnitudePruning(0.8), by_masks(smallest(0.8))),
    "filter 30%": (
        lambda model: pruning.MagnitudePruning(0.3, "filter", scopes=body(model)),
        by_masks(smallest_filters(0.3), head=False),
    ),
    "gradual, global 90%": (
        lambda model: pruning.MagnitudePruning(0.9, end=LAST, every=20, budget="global"),
        by_masks(gradual(0.9), lambda step: step <= LAST and step % 20 == 0),
    ),
    "tile-wise 60%": (
        lambda model: pruning.TileWisePruning(0.6, tile=8, scopes=body(model)),
        by_masks(tiles(0.6, 8), head=False),
    ),
    "vector-wise 2:4": (lambda model: pruning.VectorWisePruning(), by_masks(two_of_four)),
    "activations, 20% kept": (
        lambda model: pruning.ActivationPruning(keep=0.2),
        sparse_activations,
    ),
    "attention, 2 of 8": (lambda model: pruning.AttentionPruning(topk=2), sparse_attention),
    "channels, half": (lambda model: pruning.DynamicChannelPruning(0.5), salient_channels),
}
ONLY = {"attention, 2 of 8": Transformer, "channels, half": Convolutional}


def weights(model):
    """All that was trained; of what is pruned, what is left."""
    found = {name.replace("_orig", ""): p.detach().clone() for name, p in model.named_parameters()}
    for name, mask in model.named_buffers():
        found[name.replace("_mask", "")] *= mask
    return found


def main(seeds: int = 5) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print(f"accuracy in percent, mean ± standard deviation of {seeds} seeds")
    print(f"{'':44}{'before':>13}{'by hand':>13}{'by tool':>13}  largest difference of a weight")
    for build in (Convolutional, Transformer):
        for name, (make, hand) in METHODS.items():
            if ONLY.get(name, build) is not build:
                continue
            table, difference = [], 0.0
            for seed in range(seeds):
                data, model = Data(seed), trained(build, seed)
                plain, tooled = copy.deepcopy(model), copy.deepcopy(model)
                hand(plain, data)
                by_hand = data.accuracy(plain)
                table.append((data.accuracy(model), by_hand, by_tool(make)(tooled, data)))
                ours = weights(tooled)
                difference = max(
                    difference,
                    *(float((w - ours[key]).abs().max()) for key, w in weights(plain).items()),
                )
            means, spreads = np.mean(table, 0), np.std(table, 0)
            cells = (f"{m:.2f} ± {s:.2f}" for m, s in zip(means, spreads, strict=True))
            label = f"{build.__name__.lower()}, {name}"
            print(
                f"{label:44}{''.join(f'{cell:>13}' for cell in cells)}  {difference:.1e}",
                flush=True,
            )


_trained: dict[tuple[type, int], nn.Module] = {}


def trained(build, seed):
    """A model that is trained densely; each is trained once."""
    if (build, seed) not in _trained:
        torch.manual_seed(seed)
        model = build()
        Data(seed).train(model, EPOCHS)
        _trained[build, seed] = model
    return _trained[build, seed]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
