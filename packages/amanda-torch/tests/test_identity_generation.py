"""S4 in generation loops of transformers: every decode step runs the operators of the first."""

from __future__ import annotations

from typing import Any

import amanda
import pytest
import torch
import transformers
from amanda.testing.probes import Record
from small_transformers import small
from watching import held

STEPS = 12
PROMPT = torch.tensor([[5, 17, 3, 42]])


def llama() -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    special = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
    return small(transformers.LlamaForCausalLM, **special).eval()


def t5() -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    return small(transformers.T5ForConditionalGeneration, eos_token_id=None).eval()


def generate(model: transformers.PreTrainedModel, steps: int, options: Any) -> torch.Tensor:
    torch.manual_seed(1)
    return model.generate(PROMPT, max_new_tokens=steps, **options)


@pytest.mark.parametrize(
    ("build", "options"),
    [
        (llama, {"do_sample": False}),
        (llama, {"do_sample": True, "top_k": 5, "top_p": 0.9, "temperature": 0.7}),
        (llama, {"num_beams": 3}),
        (llama, {"do_sample": False, "use_cache": False}),
        (llama, {"do_sample": False, "cache_implementation": "static"}),
        (t5, {"do_sample": False}),
        (t5, {"num_beams": 2, "do_sample": True}),
    ],
    ids=["greedy", "sampling", "beams", "no cache", "static cache", "t5", "t5 beams"],
)
def test_a_long_generation_has_the_operators_of_a_short_one(build: Any, options: Any) -> None:
    model = build()
    expected = generate(model, STEPS, options)
    tool = Record()
    with amanda.apply(tool):
        generate(model, 2, options)
        operators, kept, ran = len(tool.analyzed), held()["Operator"], len(tool.ran)
        actual = generate(model, STEPS, options)
        assert len(tool.analyzed) == operators
        assert held()["Operator"] == kept
    assert len(tool.ran) > ran * STEPS / 4
    assert torch.equal(actual, expected)


def test_a_decode_step_and_a_forward_call_share_the_models_operators() -> None:
    model = llama()
    with amanda.apply(tool := Record(["linear", "scaled_dot_product_attention"])):
        model(PROMPT)
        called = list(tool.analyzed)
        generate(model, 4, {"do_sample": False})
    assert len([id for id in called if "/linear" in id]) == 2 * 7 + 1
    assert tool.analyzed == called


def test_the_encoder_that_generate_calls_is_part_of_the_model() -> None:
    model = t5()
    with amanda.apply(tool := Record("linear")):
        generate(model, 4, {"do_sample": False})
        generated = set(tool.analyzed)
        model(input_ids=PROMPT, decoder_input_ids=PROMPT)
    assert any(id.startswith("encoder.block.0.layer.0.SelfAttention.q/") for id in generated)
    assert set(tool.analyzed) == generated
