"""The models of PyTorch that are measured, each with what it is run on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from benchmarks.convolutional import Inception, ResNet50

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Workload:
    """A model and what it is called with.

    Attributes:
        one: the operator type that matters most in it.
        is_big: whether a call takes so long that few ways are measured.
        is_huge: whether a step of training takes so long that even fewer are.
    """

    name: str
    model: nn.Module
    arguments: tuple[Tensor, ...]
    one: str
    is_big: bool = False
    is_huge: bool = False
    optimizer: torch.optim.Optimizer = field(init=False)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)

    def output(self) -> Tensor:
        """What a call gives, where it is several the first."""
        return first_of(self.model(*self.arguments))

    def infer(self) -> None:
        """Run the model without gradients."""
        with torch.no_grad():
            self.output()

    def train(self) -> None:
        """Take a step of training: forward, backward, update."""
        self.optimizer.zero_grad()
        self.output().square().mean().backward()
        self.optimizer.step()


def first_of(output: Any) -> Tensor:
    """The first tensor of what a model gives."""
    return output if isinstance(output, Tensor) else output[0]


def tokens(batch: int, length: int) -> tuple[Tensor, ...]:
    """Random tokens."""
    return (torch.randint(0, 1000, (batch, length)),)


def minilm(batch: int) -> Workload:
    """A model of MiniLM's size (6 layers of 384), on sentences of 10 tokens."""
    import transformers

    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    return Workload(
        f"MiniLM, {batch} x 10",
        transformers.BertModel(config).eval(),
        tokens(batch, 10),
        "linear",
        is_big=batch > 1,
    )


def bert_base() -> Workload:
    """A model of BERT-base's size."""
    import transformers

    model = transformers.BertModel(transformers.BertConfig()).eval()
    return Workload("BERT-base, 4 x 64", model, tokens(4, 64), "linear", is_big=True, is_huge=True)


def gpt2() -> Workload:
    """A model of GPT-2's size, with its head."""
    import transformers

    config = transformers.GPT2Config(use_cache=False)
    model = transformers.GPT2LMHeadModel(config).eval()
    return Workload("GPT-2, 1 x 64", model, tokens(1, 64), "addmm", is_big=True, is_huge=True)


def resnet50(batch: int = 4, size: int = 224) -> Workload:
    """ResNet-50, whose normalization is trained too."""
    images = (torch.randn(batch, 3, size, size),)
    model = ResNet50().train()
    name = f"ResNet-50, {batch} x {size}²"
    return Workload(name, model, images, "conv2d", is_big=True, is_huge=True)


def inception() -> Workload:
    """A network of many small branches."""
    return Workload("Inception, 1 x 64²", Inception(), (torch.randn(1, 3, 64, 64),), "conv2d")


def small_transformer() -> Workload:
    """Two layers of 64, so small that overhead is most of what is added."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train()
    return Workload("small Transformer, 8 x 16", model, (torch.randn(8, 16, 64),), "linear")


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "MiniLM batch 1": lambda: minilm(1),
    "small Transformer": small_transformer,
    "Inception": inception,
    "ResNet-50": resnet50,
    "BERT-base": bert_base,
    "GPT-2": gpt2,
    "MiniLM batch 32": lambda: minilm(32),
}
