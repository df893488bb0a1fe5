"""How much of a model do module hooks see?

Runs one forward pass of some architectures, without weights, and counts the operators that run
within a leaf module (all that a forward hook on modules can be told of), those that Amanda sees,
and the FLOPs of both. ``torch.utils.flop_counter`` is the reference for FLOPs. The models are those
of the tests, in ``tests/zoo``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amanda
import torch
import transformers
from amanda_tools import Flops
from small_transformers import small
from torch.utils.flop_counter import FlopCounterMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.results import Part

TOKENS = {"input_ids": torch.arange(64).reshape(2, 32)}
IMAGE = {"pixel_values": torch.zeros(2, 3, 64, 64)}
WIDE = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 3072}
MODELS: dict[str, tuple[Callable[[], torch.nn.Module], dict[str, Any]]] = {
    "BERT": (lambda: small(transformers.BertModel, vocab_size=64, **WIDE), TOKENS),
    "GPT-2": (
        lambda: small(transformers.GPT2Model, vocab_size=64, n_embd=64, n_head=4),
        TOKENS,
    ),
    "Llama": (
        lambda: small(
            transformers.LlamaModel,
            **{**WIDE, "vocab_size": 64, "num_key_value_heads": 4, "intermediate_size": 128},
        ),
        TOKENS,
    ),
    "ViT": (lambda: small(transformers.ViTModel, image_size=64, **WIDE), IMAGE),
    "ConvNeXt": (
        lambda: small(
            transformers.ConvNextModel, hidden_sizes=[16, 32, 64, 128], depths=[1, 1, 1, 1]
        ),
        IMAGE,
    ),
    "ResNet": (
        lambda: small(
            transformers.ResNetModel, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1]
        ),
        IMAGE,
    ),
}


def run(part: Part) -> None:
    """Count the operators and FLOPs of all models."""
    rows = []
    for name, (build, inputs) in MODELS.items():
        model = build().eval()
        leaves = {path for path, module in model.named_modules() if not list(module.children())}
        flops = Flops()
        with torch.no_grad():
            with amanda.apply(flops):
                model(**inputs)
            with FlopCounterMode(display=False) as reference:
                model(**inputs)
        found = flops.rows()
        inside = [row for row in found if row.place.scope in leaves]
        ran, seen = sum(row.calls for row in found), sum(row.calls for row in inside)
        total, hooked = sum(row.forward for row in found), sum(row.forward for row in inside)
        counted = [f"{seen / ran:.0%}", f"{total:,}", f"{hooked / total:.1%}"]
        rows.append([name, str(ran), *counted, f"{reference.get_total_flops():,}"])
    part.table(
        "What forward hooks on modules can see",
        ["model", "operators", "in leaf modules", "FLOPs", "in leaf modules", "flop_counter"],
        rows,
        "One forward pass of small models; flop_counter does not count attention on the CPU.",
    )
