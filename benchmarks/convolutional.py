"""Two convolutional networks in plain PyTorch: ResNet-50, and one of many small branches."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Unit(nn.Sequential):
    """A convolution with its normalization and, but for the last of a block, its activation."""

    def __init__(
        self,
        width: int,
        wider: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        activation: bool = True,
    ) -> None:
        across = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (across[0] // 2, across[1] // 2)
        layers: list[nn.Module] = [
            nn.Conv2d(width, wider, across, stride, padding, bias=False),
            nn.BatchNorm2d(wider),
        ]
        super().__init__(*layers, *([nn.ReLU(inplace=True)] if activation else []))


class Bottleneck(nn.Module):
    """A block of ResNet-50: narrow, convolve, widen, and add what came in."""

    def __init__(self, width: int, narrow: int, stride: int) -> None:
        super().__init__()
        wider = 4 * narrow
        self.narrow = Unit(width, narrow, 1)
        self.convolve = Unit(narrow, narrow, 3, stride)
        self.widen = Unit(narrow, wider, 1, activation=False)
        same = width == wider and stride == 1
        self.shortcut = nn.Identity() if same else Unit(width, wider, 1, stride, activation=False)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.widen(self.convolve(self.narrow(x))) + self.shortcut(x))


class ResNet50(nn.Module):
    """He et al. 2016, with 25.6 million parameters; the stride is in the wider convolution."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(Unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))
        blocks, width = [], 64
        for narrow, count, stride in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]:
            for i in range(count):
                blocks.append(Bottleneck(width, narrow, stride if i == 0 else 1))
                width = 4 * narrow
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Branches(nn.Module):
    """A block as in Inception: branches of several sizes, which are put together."""

    def __init__(self, width: int, each: int) -> None:
        super().__init__()
        self.one = Unit(width, each, 1)
        self.five = nn.Sequential(Unit(width, each, 1), Unit(each, each, 5))
        self.threes = nn.Sequential(Unit(width, each, 1), Unit(each, each, 3), Unit(each, each, 3))
        self.apart = nn.Sequential(
            Unit(width, each, 1), Unit(each, each, (1, 7)), Unit(each, each, (7, 1))
        )
        self.pool = nn.Sequential(nn.AvgPool2d(3, 1, 1), Unit(width, each, 1))

    def forward(self, x: Tensor) -> Tensor:
        branches = (self.one, self.five, self.threes, self.apart, self.pool)
        return torch.cat([branch(x) for branch in branches], 1)


class Inception(nn.Module):
    """Eleven blocks of five branches each: 350 operators on little arithmetic."""

    def __init__(self, each: int = 16, blocks: int = 11, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(Unit(3, 32, 3, 2), Unit(32, 5 * each, 3), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(*(Branches(5 * each, each) for _ in range(blocks)))
        self.head = nn.Linear(5 * each, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))
