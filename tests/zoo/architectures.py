"""Ten architectures of the field for PyTorch, each with inputs for one call of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import transformers
from plain_models import DenseNet, Tagger
from small_transformers import inputs_of, small, tokens
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

    Example = tuple[nn.Module, dict[str, Tensor]]


def _example(model: nn.Module) -> Example:
    return model, inputs_of(model)


ARCHITECTURES: dict[str, Callable[[], Example]] = {
    "resnet": lambda: _example(small(transformers.ResNetModel)),
    "densenet": lambda: (DenseNet(), {"x": torch.randn(2, 3, 32, 32)}),
    "vit": lambda: _example(small(transformers.ViTModel)),
    "convnext": lambda: _example(small(transformers.ConvNextModel, drop_path_rate=0.2)),
    "bert": lambda: _example(small(transformers.BertModel)),
    "gpt2": lambda: _example(small(transformers.GPT2LMHeadModel)),
    "llama": lambda: _example(small(transformers.LlamaForCausalLM)),
    "t5": lambda: _example(small(transformers.T5ForConditionalGeneration)),
    "whisper": lambda: _example(small(transformers.WhisperModel, dropout=0.1)),
    "lstm": lambda: (Tagger(), {"words": tokens(3, 7)}),
}


def loss_of(output: object) -> Tensor:
    """A loss that depends on every floating-point output of a model."""
    if isinstance(output, Tensor):
        return output.square().mean()
    assert isinstance(output, dict)
    parts = [v for v in output.values() if isinstance(v, Tensor) and v.is_floating_point()]
    return sum((part.square().mean() for part in parts), torch.zeros(()))
