"""Steering and patching in a language model, against hooks that are placed by hand."""

import amanda
import pytest
import torch
import transformers
from amanda_tools.activations import Activations
from amanda_tools.changes import Patch, Steer
from small_transformers import small


@pytest.fixture(scope="module")
def gpt2():
    return small(transformers.GPT2LMHeadModel).eval()


@pytest.fixture
def prompts():
    return torch.tensor([[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]])


def test_steering_at_some_tokens(gpt2, prompts):
    vector = torch.randn(gpt2.config.n_embd)
    for tokens in ([1, -1], [7], None):

        def add(module, args, output, tokens=tokens):
            hidden = output.clone()
            for token in range(5) if tokens is None else tokens:
                if -5 <= token < 5:
                    hidden[:, token] += vector
            return hidden

        handle = gpt2.transformer.h[0].register_forward_hook(add)
        with torch.no_grad():
            expected = gpt2(prompts).logits
        handle.remove()
        with amanda.apply(Steer(vector, module="transformer.h.0", tokens=tokens)):
            found = gpt2(prompts).logits
        assert torch.equal(found, expected)


def test_patching_from_another_prompt_at_one_token(gpt2, prompts):
    capture = Activations(modules=["transformer.h.0"], capture=1)
    with torch.no_grad():
        with amanda.apply(capture):
            gpt2(prompts[:1])
        with amanda.apply(Patch(capture.captures(), module="transformer.h.0", tokens=[0])):
            patched = gpt2(prompts[1:]).logits
        mixed = torch.cat([prompts[:1, :1], prompts[1:, 1:]], 1)
        assert not torch.equal(patched, gpt2(prompts[1:]).logits)
        assert torch.allclose(patched[:, 0], gpt2(mixed).logits[:, 0], atol=1e-5)


def test_a_generation_is_steered_where_the_token_is(gpt2, prompts):
    """The prompt has a third token, a step of the generation has not."""
    vector = torch.randn(gpt2.config.n_embd) * 10

    def add(module, args, output):
        hidden = output.clone()
        if hidden.shape[1] > 2:
            hidden[:, 2] += vector
        return hidden

    options = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    handle = gpt2.transformer.h[0].register_forward_hook(add)
    expected = gpt2.generate(prompts, **options)
    handle.remove()
    with amanda.apply(Steer(vector, module="transformer.h.0", tokens=[2])):
        assert torch.equal(gpt2.generate(prompts, **options), expected)
