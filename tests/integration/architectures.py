"""Ten architectures of the field, small, from transformers' configurations and plain PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    Example = tuple[nn.Module, dict[str, Tensor]]


def tokens(*shape: int) -> Tensor:
    return torch.randint(3, 60, shape)


def resnet() -> Example:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2])
    return transformers.ResNetModel(config), {"pixel_values": torch.randn(2, 3, 32, 32)}


class DenseBlock(nn.Module):
    """As in DenseNet: all that came before is put together; activations work in place."""

    def __init__(self, channels: int, growth: int, layers: int) -> None:
        super().__init__()
        widths = [channels + growth * i for i in range(layers)]
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for width in widths)
        self.convs = nn.ModuleList(nn.Conv2d(width, growth, 3, padding=1) for width in widths)
        self.act = nn.ReLU(inplace=True)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for norm, conv in zip(self.norms, self.convs, strict=True):
            features.append(self.dropout(conv(self.act(norm(torch.cat(features, 1))))))
        return torch.cat(features, 1)


class DenseNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True))
        self.dense = DenseBlock(8, 4, 3)
        self.down = nn.Sequential(nn.Conv2d(20, 10, 1), nn.AvgPool2d(2))
        self.head = nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(self.dense(self.stem(x)))
        x += 1
        return self.head(functional.adaptive_avg_pool2d(functional.relu_(x), 1).flatten(1))


def densenet() -> Example:
    return DenseNet(), {"x": torch.randn(2, 3, 8, 8)}


def vit() -> Example:
    config = transformers.ViTConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        image_size=32,
        patch_size=8,
    )
    return transformers.ViTModel(config), {"pixel_values": torch.randn(2, 3, 32, 32)}


def convnext() -> Example:
    config = transformers.ConvNextConfig(
        hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1], drop_path_rate=0.2
    )
    return transformers.ConvNextModel(config), {"pixel_values": torch.randn(2, 3, 64, 64)}


def bert() -> Example:
    config = transformers.BertConfig(
        vocab_size=60,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
    )
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    inputs = {"input_ids": tokens(2, 9), "attention_mask": mask}
    return transformers.BertModel(config), inputs


def gpt2() -> Example:
    config = transformers.GPT2Config(
        vocab_size=60,
        n_positions=32,
        n_embd=24,
        n_layer=2,
        n_head=3,
        bos_token_id=1,
        eos_token_id=2,
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": tokens(2, 9)}


def llama() -> Example:
    config = transformers.LlamaConfig(
        vocab_size=60,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
    )
    return transformers.LlamaForCausalLM(config), {"input_ids": tokens(2, 9)}


def t5() -> Example:
    config = transformers.T5Config(
        vocab_size=60,
        d_model=24,
        d_kv=8,
        d_ff=40,
        num_layers=2,
        num_heads=3,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    inputs = {"input_ids": tokens(2, 9), "decoder_input_ids": tokens(2, 5)}
    return transformers.T5ForConditionalGeneration(config), inputs


def whisper() -> Example:
    config = transformers.WhisperConfig(
        vocab_size=60,
        num_mel_bins=16,
        d_model=24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=40,
        decoder_ffn_dim=40,
        max_source_positions=25,
        max_target_positions=20,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        dropout=0.1,
    )
    inputs = {"input_features": torch.randn(2, 16, 50), "decoder_input_ids": tokens(2, 5)}
    return transformers.WhisperModel(config), inputs


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(60, 12)
        self.lstm = nn.LSTM(12, 10, num_layers=2, bidirectional=True, batch_first=True, dropout=0.2)
        self.gru = nn.GRU(20, 8)
        self.out = nn.Linear(8, 5)

    def forward(self, words: Tensor) -> Tensor:
        return self.out(self.gru(self.lstm(self.embedding(words))[0])[0]).log_softmax(-1)


def lstm() -> Example:
    return Tagger(), {"words": tokens(3, 7)}


ARCHITECTURES: dict[str, Callable[[], Example]] = {
    build.__name__: build
    for build in (resnet, densenet, vit, convnext, bert, gpt2, llama, t5, whisper, lstm)
}


def loss_of(output: object) -> Tensor:
    """A loss that depends on every floating-point output of a model."""
    if isinstance(output, Tensor):
        return output.square().mean()
    assert isinstance(output, dict)
    parts = [v for v in output.values() if isinstance(v, Tensor) and v.is_floating_point()]
    return sum((part.square().mean() for part in parts), torch.zeros(()))
