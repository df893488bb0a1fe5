"""Jobs of the tutorials of nnsight and torchinfo, done with them and with Amanda, side by side.

Each job is a function of either kind that gives the same result, which is checked; a table tells
how many lines of code each takes. ``python -m nox -s peers`` installs the peers and runs it.

The model is a GPT-2 made from a configuration, with random weights. What makes the tokenizer, which
nnsight asks for, is not counted.
"""

from __future__ import annotations

import ast
import inspect
import logging
import warnings
from typing import TYPE_CHECKING, Any

import amanda
import torch
import transformers
from amanda_tools import Summary
from amanda_tools.activations import Activations
from amanda_tools.changes import Patch, Steer
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, models, pre_tokenizers

if TYPE_CHECKING:
    from torch import Tensor

LAYERS, WIDTH, TOKENS = 4, 64, 5
BLOCKS = [f"transformer.h.{i}" for i in range(LAYERS)]
VECTOR = torch.linspace(-3, 3, WIDTH)
PROMPT, OTHER = torch.tensor([[11, 42, 7, 98, 150]]), torch.tensor([[11, 42, 9, 98, 150]])


def gpt2() -> Any:
    transformers.set_seed(0)
    config = transformers.GPT2Config(
        n_layer=LAYERS,
        n_head=4,
        n_embd=WIDTH,
        vocab_size=200,
        n_positions=64,
        initializer_range=0.1,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
        tie_word_embeddings=False,  # torchinfo counts what is shared twice
    )
    return transformers.GPT2LMHeadModel(config).eval()


def tokenizer() -> Any:
    words = {f"w{i}": i for i in range(200)}
    inner = Tokenizer(models.WordLevel(words, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="w0", unk_token="w0"
    )


# What all layers return


def capture_amanda(model: Any) -> list[Tensor]:
    tool = Activations(modules=BLOCKS, capture=1)
    with amanda.apply(tool):
        model(PROMPT)
    return [torch.as_tensor(hidden) for hidden in tool.captures().values()]


def capture_nnsight(model: Any) -> list[Tensor]:
    with model.trace(PROMPT):
        hidden = nnsight.save([block.output for block in model.transformer.h])
    return hidden  # noqa: RET504


# What the model would say after each layer: the logit lens


def lens_amanda(model: Any) -> list[Tensor]:
    hidden = capture_amanda(model)
    head = [model.lm_head(model.transformer.ln_f(block)) for block in hidden]
    return [logits.argmax(-1) for logits in head]


def lens_nnsight(model: Any) -> list[Tensor]:
    with model.trace(PROMPT):
        head = [model.lm_head(model.transformer.ln_f(b.output)) for b in model.transformer.h]
        words = nnsight.save([logits.argmax(-1) for logits in head])
    return words  # noqa: RET504


# One token's state at one layer, from one prompt into another: activation patching


def patch_amanda(model: Any) -> list[Tensor]:
    tool = Activations(modules=["transformer.h.1"], capture=1)
    with amanda.apply(tool):
        model(PROMPT)
    with amanda.apply(Patch(tool.captures(), module="transformer.h.1", tokens=[2])):
        return [model(OTHER).logits]


def patch_nnsight(model: Any) -> list[Tensor]:
    with model.trace(PROMPT):
        clean = model.transformer.h[1].output[:, 2].save()
    with model.trace(OTHER):
        model.transformer.h[1].output[:, 2] = clean
        logits = model.output.logits.save()
    return [logits]


# A vector that is added to one layer while text is generated: steering


def steer_amanda(model: Any) -> list[Tensor]:
    with amanda.apply(Steer(VECTOR, module="transformer.h.1")):
        return [model.generate(PROMPT, max_new_tokens=TOKENS, do_sample=False)]


def steer_nnsight(model: Any) -> list[Tensor]:
    with model.generate(PROMPT, max_new_tokens=TOKENS, do_sample=False) as tracer:
        for _ in tracer.iter[:TOKENS]:
            model.transformer.h[1].output[:] += VECTOR
        words = tracer.result.save()
    return [words]


# How a logit changes with what a layer returns: attribution


class Gradients(amanda.Tool):
    def __init__(self, module: str) -> None:
        super().__init__()
        self.kept: list[Tensor] = []
        self.add_inst_for_module(self.analyze, modules=[module])

    def analyze(self, ctx: amanda.OpContext) -> None:
        ctx.insert_on_grad_outputs(self.keep, outputs=[0])

    def keep(self, grad: Tensor) -> None:
        self.kept.append(grad)


def attribute_amanda(model: Any) -> list[Tensor]:
    gradients = Gradients("transformer.h.1")
    with amanda.apply(gradients):
        model(PROMPT).logits[0, -1, 5].backward()
    return gradients.kept


def attribute_nnsight(model: Any) -> list[Tensor]:
    with model.trace(PROMPT):
        hidden = model.transformer.h[1].output
        hidden.requires_grad_(True)
        logit = model.output.logits[0, -1, 5]
        with logit.backward():
            grad = hidden.grad.save()
    return [grad]


# Classes, shapes, parameters and multiply-adds of all modules: torchinfo's summary


def summary_amanda(model: Any) -> list[Tensor]:
    summary = Summary()
    with amanda.apply(summary), torch.no_grad():
        model(PROMPT)
    return [torch.tensor(summary.totals()["params"])]


def summary_torchinfo(model: Any) -> list[Tensor]:
    statistics = torchinfo.summary(model, input_data=PROMPT, verbose=0)
    return [torch.tensor(statistics.total_params)]


# Each job as Amanda's user writes it, with a tool of one's own if there is none, and with a peer.
JOBS = [
    ("capture", [capture_amanda], capture_nnsight),
    ("logit lens", [capture_amanda, lens_amanda], lens_nnsight),
    ("patch", [patch_amanda], patch_nnsight),
    ("steer", [steer_amanda], steer_nnsight),
    ("attribute", [Gradients, attribute_amanda], attribute_nnsight),
    ("summary", [summary_amanda], summary_torchinfo),
]


def lines(*pieces: Any) -> int:
    """Lines of code: no blank ones, docstrings or comments, nor the name of a function."""
    count = 0
    for piece in pieces:
        code = ast.unparse(ast.parse(inspect.getsource(piece)))
        count += len(code.splitlines()) - (not inspect.isclass(piece))
    return count


def rows() -> list[list[str]]:
    """Do each job in both ways, which must give the same, and count the lines of both."""
    global nnsight, torchinfo  # the jobs name them as a user's script does
    import nnsight
    import torchinfo

    model = gpt2()
    traced = nnsight.TransformersModel(model, tokenizer=tokenizer())
    counted = []
    for name, ours, theirs in JOBS:
        peer = theirs.__name__.rpartition("_")[2]
        found, expected = ours[-1](model), theirs(traced if peer == "nnsight" else model)
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one, other), name
        counted.append([name, peer, str(lines(theirs)), str(lines(*ours))])
    return counted


def main() -> None:
    table = Table("job", "peer", "its lines", "Amanda's lines", title="Side by side")
    for row in rows():
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable()
    main()
