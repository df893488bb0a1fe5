"""Which synapses carry a digit? Effective paths of a small network, compared by class."""

from __future__ import annotations

import argparse

import amanda
import torch
from amanda_tools.effective_path import EffectivePath
from sklearn.datasets import load_digits
from torch import nn


class Net(nn.Module):
    """A residual network for images of 8 x 8."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.classes = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = nn.functional.max_pool2d(x + self.second(x), 2)
        scores: torch.Tensor = self.classes(x.flatten(1))
        return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--out", help="a picture (.svg), JSON (.json) or CSV (.csv)")
    options = parser.parse_args()

    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(options.epochs):
        for batch in torch.randperm(len(images)).split(64):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()

    tool = EffectivePath(out=options.out)
    with amanda.apply(tool), torch.no_grad():
        for batch in images[: options.examples].split(25):
            model(batch)
    print(tool.found())
    for layer, density in next(iter(tool.densities().values())).items():
        print(f"{layer:24} {density:6.1%} of the synapses carry class 0")
    pairs = [
        (value, one, other)
        for one, row in tool.similarity().items()
        for other, value in row.items()
        if one < other
    ]
    value, one, other = max(pairs)
    print(f"most alike are the paths of {one} and {other}: {value:.0%} in common")
    value, one, other = min(pairs)
    print(f"least alike those of {one} and {other}: {value:.0%}")


if __name__ == "__main__":
    main()
