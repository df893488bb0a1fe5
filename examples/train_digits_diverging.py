"""Train a small network on scikit-learn's handwritten digits, with a loss that is not careful.

It takes the logarithm of probabilities, some of which are zero by the time. Where is that?
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 32)
        self.classes = nn.Linear(32, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.classes(self.hidden(images).relu())
        return scores.softmax(-1)


def cross_entropy(probabilities: torch.Tensor, digits: torch.Tensor) -> torch.Tensor:
    wanted = nn.functional.one_hot(digits, 10)
    return -(wanted * probabilities.log()).sum(-1).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    steps = parser.parse_args().steps

    torch.manual_seed(0)
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32), torch.tensor(digits.target)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(steps):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
