"""Accuracy on handwritten digits of what is quantized: by the tools, and by hand in plain PyTorch.

Two models, a convolutional network and a small transformer, are trained in single precision on
scikit-learn's digits. Each is then quantized in several ways, twice: by a tool of amanda_tools from
outside, and by hand, in which every multiplied tensor of the model's source goes through PyTorch's
own fake quantization (for LSQ, through a few lines after its paper). It prints a row for each way,
with means and standard deviations over seeds.

    python benchmarks/quantization/accuracy.py --seeds 5
"""

import argparse
import copy
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import amanda
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from amanda_tools.quantization import Quantize, QuantizeAware
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

BATCH = 64


class Model(nn.Module):
    """A model whose multiplied tensors go through :attr:`by_hand`, if there is one."""

    by_hand: Callable[[str, Tensor, bool], Tensor] | None = None

    def activation(self, name: str, x: Tensor) -> Tensor:
        return x if self.by_hand is None else self.by_hand(name, x, False)

    def weight(self, layer: nn.Module) -> Tensor:
        return layer.weight if self.by_hand is None else self.by_hand("", layer.weight, True)

    def linear(self, name: str, x: Tensor) -> Tensor:
        layer = getattr(self, name)
        return F.linear(self.activation(name, x), self.weight(layer), layer.bias)

    def conv(self, name: str, x: Tensor) -> Tensor:
        layer = getattr(self, name)
        return F.conv2d(self.activation(name, x), self.weight(layer), layer.bias)


class Convolutional(Model):
    def __init__(self) -> None:
        super().__init__()
        self.edges, self.shapes = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3)
        self.classes = nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv("edges", x[:, None]))
        return self.linear("classes", F.relu(self.conv("shapes", x)).flatten(1))


class Transformer(Model):
    """Rows of an image are tokens; attention is a function, and no module."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.qkv, self.out = nn.Linear(8, 32), nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down, self.classes = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 10)
        self.positions = nn.Parameter(torch.randn(8, 32) * 0.1)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear("rows", x) + self.positions
        heads = (
            self.linear("qkv", self.norms[0](x)).reshape(len(x), 8, 3, 4, 8).permute(2, 0, 3, 1, 4)
        )
        q, k, v = (self.activation(f"attention {i}", heads[i]) for i in range(3))
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(len(x), 8, 32)
        x = x + self.linear("out", attended)
        x = x + self.linear("down", F.relu(self.linear("up", self.norms[1](x))))
        return self.linear("classes", x.mean(1))


# By hand


def settings(
    low: Tensor, high: Tensor, least: int, most: int, symmetric: bool
) -> tuple[Tensor, Tensor]:
    low, high = low.clamp(max=0), high.clamp(min=0)
    if symmetric:
        scale = torch.maximum(-low, high) / ((most - least) / 2)
        return scale.clamp(min=torch.finfo(torch.float32).eps), torch.zeros_like(scale)
    scale = ((high - low) / (most - least)).clamp(min=torch.finfo(torch.float32).eps)
    return scale, (least - torch.round(low / scale)).clamp(least, most)


def rounded_weight(w: Tensor, bits: int) -> Tensor:
    rows, half = w.detach().flatten(1), 2 ** (bits - 1)
    scale, zero_point = settings(rows.amin(1), rows.amax(1), -half, half - 1, True)
    return torch.fake_quantize_per_channel_affine(w, scale, zero_point, 0, -half, half - 1)


def rounded(x: Tensor, low: Tensor, high: Tensor, bits: int) -> Tensor:
    scale, zero_point = settings(low, high, 0, 2**bits - 1, False)
    return torch.fake_quantize_per_tensor_affine(x, float(scale), int(zero_point), 0, 2**bits - 1)


class Dynamic:
    """Weights by channel, activations by the range of each batch; those of 0 bits stay exact."""

    def __init__(self, bits: int, activation_bits: int) -> None:
        self.bits, self.activation_bits = bits, activation_bits

    def __call__(self, name: str, x: Tensor, is_weight: bool) -> Tensor:
        if is_weight:
            return rounded_weight(x, self.bits)
        if not self.activation_bits:
            return x
        return rounded(x, x.detach().min(), x.detach().max(), self.activation_bits)


class Calibrated(Dynamic):
    """The same with ranges of activations that were observed."""

    def __init__(self, bits: int, activation_bits: int) -> None:
        super().__init__(bits, activation_bits)
        self.ranges: dict[str, tuple[Tensor, Tensor]] = {}
        self.observing = True

    def __call__(self, name: str, x: Tensor, is_weight: bool) -> Tensor:
        if self.observing:
            if not is_weight:
                low, high = self.ranges.get(name, (x.min(), x.max()))
                self.ranges[name] = torch.minimum(low, x.min()), torch.maximum(high, x.max())
            return x
        if is_weight:
            return rounded_weight(x, self.bits)
        return rounded(x, *self.ranges[name], self.activation_bits)


class Moving(Dynamic):
    """Training with averages of ranges, which stay when it is over."""

    def __init__(self, bits: int, activation_bits: int) -> None:
        super().__init__(bits, activation_bits)
        self.ranges: dict[str, tuple[Tensor, Tensor]] = {}
        self.training = True

    def __call__(self, name: str, x: Tensor, is_weight: bool) -> Tensor:
        if is_weight:
            return rounded_weight(x, self.bits)
        if self.training:
            now = x.detach().min(), x.detach().max()
            old = self.ranges.get(name, now)
            self.ranges[name] = tuple(a + 0.01 * (b - a) for a, b in zip(old, now, strict=True))
        return rounded(x, *self.ranges[name], self.activation_bits)


class Learned:
    """LSQ with one scale for each channel of a weight, trained by gradient descent."""

    def __init__(self, bits: int, activation_bits: int, rate: float) -> None:
        self.bits, self.activation_bits, self.rate = bits, activation_bits, rate
        self.scales: dict[Any, tuple[nn.Parameter, int, int]] = {}

    def __call__(self, name: str, x: Tensor, is_weight: bool) -> Tensor:
        key = id(x) if is_weight else name
        if key not in self.scales:
            bits = self.bits if is_weight else self.activation_bits
            signed = is_weight or bool((x < 0).any())
            least = -(2 ** (bits - 1)) if signed else 0
            most = least + 2**bits - 1
            magnitude = (
                x.detach().abs().flatten(1).mean(1) if is_weight else x.detach().abs().mean()
            )
            shape = (-1, *(1,) * (x.dim() - 1)) if is_weight else ()
            scale = nn.Parameter((2 * magnitude / most**0.5).reshape(shape))
            self.scales[key] = scale, least, most
            if not is_weight:
                return x  # which the scale begins with
        scale, least, most = self.scales[key]
        factor = (x.numel() / scale.numel() * most) ** -0.5
        scale = scale * factor + (scale - scale * factor).detach()
        v = (x / scale).clamp(least, most)
        return (v + (v.round() - v).detach()) * scale

    def step(self) -> None:
        with torch.no_grad():
            for scale, _, _ in self.scales.values():
                if scale.grad is not None:
                    scale -= self.rate * scale.grad
                    scale.clamp_(min=torch.finfo(torch.float32).eps)
                    scale.grad = None


# Training


def batches(x: Tensor, y: Tensor, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    for chosen in order.split(BATCH):
        yield x[chosen], y[chosen]


def train(model: Model, data: Any, epochs: int, optimizer: Any, after: Callable[[], None]) -> None:
    for epoch in range(epochs):
        for x, y in batches(*data[:2], epoch):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            after()


def nothing() -> None:
    pass


def accuracy(model: Model, data: Any) -> float:
    with torch.no_grad():
        return float((model(data[2]).argmax(1) == data[3]).float().mean())


def fine_tuned(model: Model, data: Any, epochs: int, after: Callable[[], None] = nothing) -> None:
    train(model, data, epochs, torch.optim.SGD(model.parameters(), 0.02, momentum=0.9), after)


def post_training(bits: int, activation_bits: int, activations: str) -> tuple[Any, Any]:
    def by_tool(model: Model, data: Any, epochs: int) -> float:
        given = None if activations == "none" else activation_bits
        tool = Quantize(bits, activations, activation_bits=given)
        with amanda.apply(tool):
            if activations == "minmax":
                with torch.no_grad():
                    model(data[0])
                tool.freeze()
            return accuracy(model, data)

    def by_hand(model: Model, data: Any, epochs: int) -> float:
        kind = Calibrated if activations == "minmax" else Dynamic
        model.by_hand = kind(bits, 0 if activations == "none" else activation_bits)
        if activations == "minmax":
            with torch.no_grad():
                model(data[0])
            model.by_hand.observing = False
        return accuracy(model, data)

    return by_tool, by_hand


def moving(bits: int) -> tuple[Any, Any]:
    def by_tool(model: Model, data: Any, epochs: int) -> float:
        tool = QuantizeAware(bits, bits)
        with amanda.apply(tool):
            fine_tuned(model, data, epochs)
            tool.freeze()
            return accuracy(model, data)

    def by_hand(model: Model, data: Any, epochs: int) -> float:
        model.by_hand = Moving(bits, bits)
        fine_tuned(model, data, epochs)
        model.by_hand.training = False
        return accuracy(model, data)

    return by_tool, by_hand


def learned(bits: int, rate: float) -> tuple[Any, Any]:
    def by_tool(model: Model, data: Any, epochs: int) -> float:
        tool = QuantizeAware(bits, bits, "learned", learning_rate=rate)
        with amanda.apply(tool):
            fine_tuned(model, data, epochs)
            tool.freeze()
            return accuracy(model, data)

    def by_hand(model: Model, data: Any, epochs: int) -> float:
        model.by_hand = Learned(bits, bits, rate)
        fine_tuned(model, data, epochs, model.by_hand.step)
        return accuracy(model, data)

    return by_tool, by_hand


WAYS = {
    "weights of 8 bits": post_training(8, 8, "none"),
    "weights of 4 bits": post_training(4, 8, "none"),
    "8 bits, dynamic": post_training(8, 8, "dynamic"),
    "8 bits, calibrated": post_training(8, 8, "minmax"),
    "4 bits, calibrated": post_training(4, 4, "minmax"),
    "3 bits, calibrated": post_training(3, 3, "minmax"),
    "3 bits, trained, moving": moving(3),
    "3 bits, trained, LSQ": learned(3, 0.01),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20, help="of training in single precision")
    arguments = parser.parse_args()

    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)
    x, x_test, y, y_test = map(
        torch.tensor, train_test_split(images, digits.target, random_state=0)
    )
    data = x, y, x_test, y_test
    for kind in (Convolutional, Transformer):
        found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        exact = []
        for seed in range(arguments.seeds):
            torch.manual_seed(seed)
            model = kind()
            adam = torch.optim.Adam(model.parameters(), 3e-3)
            train(model, data, arguments.epochs, adam, nothing)
            exact.append(accuracy(model, data))
            for way, (by_tool, by_hand) in WAYS.items():
                both = (f(copy.deepcopy(model), data, 5) for f in (by_tool, by_hand))
                found[way].append(tuple(both))
        print(f"{kind.__name__}: {shown(exact)} in single precision, {len(exact)} seeds")
        for way, pairs in found.items():
            tool, hand = zip(*pairs, strict=True)
            print(f"  {way:26} by tool {shown(tool)}  by hand {shown(hand)}")


def shown(values: Any) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.2%} ± {spread:.2%}"


if __name__ == "__main__":
    main()
