"""Do the gradients of a deep network vanish? Norms by layer, with and without normalization."""

from __future__ import annotations

import argparse

import amanda
import torch
from amanda_tools.activations import Activations
from amanda_tools.gradients import Gradients
from sklearn.datasets import load_digits
from torch import nn


def network(depth: int, normalized: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for number in range(depth):
        layers.append(nn.Linear(64 if number == 0 else 32, 32))
        if normalized:
            layers.append(nn.LayerNorm(32))
        layers.append(nn.Sigmoid())
    return nn.Sequential(*layers, nn.Linear(32, 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()

    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    for normalized in (False, True):
        torch.manual_seed(0)
        model = network(options.depth, normalized)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        gradients, activations = Gradients(), Activations(ops=["sigmoid"])
        with amanda.apply(gradients, activations):
            for _ in range(options.steps):
                batch = torch.randint(len(images), (64,))
                loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print("with layer normalization" if normalized else "plain")
        for row in gradients.rows():
            if row.type == "Gemm" and row.input == "B":
                print(f"  layer {row.scope:>3}: gradient {row.mean:.1e} on average")
        spread = [row.std for row in activations.rows() if row.std is not None]
        print(f"  activations spread by {min(spread):.3f} to {max(spread):.3f}")


if __name__ == "__main__":
    main()
