"""Small models in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def perceptron(hidden: int = 8) -> nn.Sequential:
    """Two linear layers, three features in and two out, with an activation that works in place."""
    return nn.Sequential(nn.Linear(3, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, 2))


class DenseLayer(nn.Module):
    """As in DenseNet: a bottleneck, whose activations work in place."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.narrow = nn.Conv2d(channels, 2 * growth, 1, bias=False)
        self.norm_within = nn.BatchNorm2d(2 * growth)
        self.conv = nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False)
        self.act = nn.ReLU(inplace=True)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.narrow(self.act(self.norm(x)))
        return self.dropout(self.conv(self.act(self.norm_within(x))))


class DenseNet(nn.Module):
    """All that came before a layer is put together for it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        self.layers = nn.ModuleList(DenseLayer(8 + 4 * i, 4) for i in range(3))
        self.down = nn.Sequential(nn.Conv2d(20, 10, 1), nn.AvgPool2d(2))
        self.head = nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        x = self.down(torch.cat(features, 1))
        x += 1
        return self.head(functional.adaptive_avg_pool2d(functional.relu_(x), 1).flatten(1))


class UNet(nn.Module):
    """Convolutions that are strided, dilated, in groups and transposed, with a skip over them."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.deep = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2)
        self.up = nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1, groups=2)
        self.out = nn.Conv2d(9, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([x, self.up(self.deep(self.down(x)))], 1))


class Tagger(nn.Module):
    """Recurrent layers over words."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(60, 12)
        self.lstm = nn.LSTM(12, 10, num_layers=2, bidirectional=True, batch_first=True, dropout=0.2)
        self.gru = nn.GRU(20, 8)
        self.out = nn.Linear(8, 5)

    def forward(self, words: Tensor) -> Tensor:
        return self.out(self.gru(self.lstm(self.embedding(words))[0])[0]).log_softmax(-1)
