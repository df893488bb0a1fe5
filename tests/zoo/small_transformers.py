"""Architectures of transformers, each in one small size, with any head and any other setting."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
import transformers

_Model = TypeVar("_Model", bound=transformers.PreTrainedModel)

TOKENS = 60

_ENCODER = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
}
_SMALL: dict[str, dict[str, Any]] = {
    "resnet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2]},
    "convnext": {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]},
    "vit": {**_ENCODER, "image_size": 32, "patch_size": 8},
    "bert": {**_ENCODER, "vocab_size": TOKENS},
    "gpt2": {
        "vocab_size": TOKENS,
        "n_positions": 32,
        "n_embd": 24,
        "n_layer": 2,
        "n_head": 3,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "llama": {
        **_ENCODER,
        "vocab_size": TOKENS,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
    },
    "mixtral": {
        **_ENCODER,
        "vocab_size": TOKENS,
        "num_hidden_layers": 1,
        "num_key_value_heads": 3,
        "num_local_experts": 4,
    },
    "t5": {
        "vocab_size": TOKENS,
        "d_model": 24,
        "d_kv": 8,
        "d_ff": 40,
        "num_layers": 2,
        "num_heads": 3,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
    },
    "whisper": {
        "vocab_size": TOKENS,
        "num_mel_bins": 16,
        "d_model": 24,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 3,
        "decoder_attention_heads": 3,
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 40,
        "max_source_positions": 25,
        "max_target_positions": 20,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
    },
}


def small(model: type[_Model], **settings: Any) -> _Model:
    """A model of a class of transformers, with settings in place of those of its small size."""
    config = model.config_class
    return model(config(**{**_SMALL[config.model_type], **settings}))


def tokens(*shape: int) -> torch.Tensor:
    """Random tokens, none of which is special."""
    return torch.randint(3, TOKENS, shape)


def inputs_of(model: transformers.PreTrainedModel) -> dict[str, torch.Tensor]:
    """A batch of two for a small model, by the names of its parameters."""
    kind = model.config.model_type
    if kind in ("resnet", "vit", "convnext"):
        size = 64 if kind == "convnext" else 32
        return {"pixel_values": torch.randn(2, 3, size, size)}
    if kind == "whisper":
        return {"input_features": torch.randn(2, 16, 50), "decoder_input_ids": tokens(2, 5)}
    inputs = {"input_ids": tokens(2, 9)}
    if kind == "bert":
        inputs["attention_mask"] = torch.ones(2, 9, dtype=torch.long)
        inputs["attention_mask"][1, 6:] = 0
    if kind == "t5":
        inputs["decoder_input_ids"] = tokens(2, 5)
    return inputs
