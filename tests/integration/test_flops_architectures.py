"""FLOPs of whole models, against PyTorch's own counter."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import amanda
import pytest
import torch
import transformers
from amanda_tools.flops import Flops
from architectures import loss_of
from plain_models import DenseNet, Tagger, UNet
from small_transformers import inputs_of, small, tokens
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

if TYPE_CHECKING:
    from collections.abc import Callable

    Example = tuple[nn.Module, Callable[[], torch.Tensor]]

# PyTorch's counter does not know the CPU's fused attention kernel; here it learns that it does
# what the kernels do that it knows.
aten = torch.ops.aten
CPU_ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(
        q, k, v
    ),
    aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda grad, q, k, v, *_, **__: (
        sdpa_backward_flop_count(grad, q, k, v)
    ),
}


def convolution_backward(
    grad: torch.Size,
    image: torch.Size,
    weight: torch.Size,
    *settings: object,
    out_shape: object,
) -> int:
    """FLOPs of the gradients of a convolution.

    PyTorch's counter is wrong for one in groups: it takes the gradient of the weight for that of a
    convolution of all input channels with all output channels. By hand, each gradient takes a
    multiply-add for each weight of a group at each place of the image that the window is put to.
    """
    *_, transposed, _, _, wanted = settings
    assert isinstance(wanted, list)
    return 2 * math.prod(image if transposed else grad) * math.prod(weight[1:]) * sum(wanted[:2])


def trained(
    kind: type[transformers.PreTrainedModel],
    attention: str = "eager",
    labels: int | None = None,
    **settings: object,
) -> Example:
    """A small model of transformers, with its own loss if it has one for this many labels."""
    model = small(kind, attn_implementation=attention, **settings)

    def loss() -> torch.Tensor:
        if labels is None:
            return loss_of(model(**inputs_of(model)))
        inputs = inputs_of(model)
        inputs.pop("decoder_input_ids", None)  # which are made of the labels
        return model(**inputs, labels=tokens(2, labels)).loss

    return model, loss


def called(model: nn.Module, *inputs: Callable[[], torch.Tensor]) -> Example:
    return model, lambda: model(*(make() for make in inputs)).sum()


def images(size: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(2, 3, size, size)


FUSED: dict[str, Callable[..., Example]] = {
    "vit": partial(trained, transformers.ViTForImageClassification),
    "bert": partial(trained, transformers.BertForMaskedLM, labels=9),
    "gpt2": partial(trained, transformers.GPT2LMHeadModel, labels=9),
    "llama": partial(trained, transformers.LlamaForCausalLM, labels=9),
    "t5": partial(trained, transformers.T5ForConditionalGeneration, labels=7),
    "whisper": partial(trained, transformers.WhisperForConditionalGeneration, labels=7),
}
MODELS: dict[str, Callable[..., Example]] = {
    **FUSED,
    "resnet": partial(
        trained,
        transformers.ResNetModel,
        hidden_sizes=[8, 16, 24],
        depths=[1, 2, 1],
        layer_type="bottleneck",
    ),
    "convnext": partial(trained, transformers.ConvNextForImageClassification),
    "mixtral": partial(
        trained, transformers.MixtralForCausalLM, labels=9, experts_implementation="eager"
    ),
    "densenet": lambda: called(DenseNet(), images(32)),
    "unet": lambda: called(UNet(), images(16)),
    # in double precision, since oneDNN's kernel is one that PyTorch's counter does not know
    "lstm": lambda: called(Tagger().double(), lambda: tokens(3, 7)),
    "transformer": lambda: called(
        nn.Transformer(24, 3, 1, 2, 40, batch_first=True),
        lambda: torch.randn(2, 9, 24),
        lambda: torch.randn(2, 7, 24),
    ),
}


def count(run: Callable[[], object]) -> int:
    """FLOPs by PyTorch's counter."""
    known = {**CPU_ATTENTION, aten.convolution_backward: convolution_backward}
    with FlopCounterMode(display=False, custom_mapping=known) as counter:
        run()
    return counter.get_total_flops()


def assert_same_flops(build: Callable[[], Example]) -> None:
    torch.manual_seed(0)
    _, loss = build()

    torch.manual_seed(1)
    losses: list[torch.Tensor] = []
    forward = count(lambda: losses.append(loss()))
    backward = count(lambda: losses[0].backward())

    torch.manual_seed(1)
    flops = Flops()
    with amanda.apply(flops):
        loss().backward()

    total = flops.total()
    assert forward > 0
    assert (total.forward, total.backward) == (forward, backward)
    assert total.uncounted_backward == {}


@pytest.mark.parametrize("name", MODELS)
def test_flops_of_a_training_step_equal_those_of_the_flop_counter(name: str) -> None:
    assert_same_flops(MODELS[name])


@pytest.mark.parametrize("name", FUSED)
def test_flops_with_fused_attention_equal_those_of_the_flop_counter(name: str) -> None:
    assert_same_flops(lambda: FUSED[name]("sdpa"))


@pytest.fixture(scope="module", params=MODELS)
def inference(request: pytest.FixtureRequest) -> tuple[nn.Module, Callable[[], None], Flops]:
    """A model, what has it infer, and what was found of that."""
    torch.manual_seed(0)
    model, loss = MODELS[request.param]()
    model.eval()

    def infer() -> None:
        torch.manual_seed(1)
        with torch.inference_mode():
            loss()

    flops = Flops()
    with amanda.apply(flops):
        infer()
    return model, infer, flops


def test_inference_takes_the_flops_of_the_forward_pass_alone(
    inference: tuple[nn.Module, Callable[[], None], Flops],
) -> None:
    _, infer, flops = inference
    assert (flops.total().forward, flops.total().backward) == (count(infer), 0)


def test_parameters_are_those_of_the_model(
    inference: tuple[nn.Module, Callable[[], None], Flops],
) -> None:
    model, _, flops = inference
    assert flops.total().params == sum(p.numel() for p in model.parameters())


def test_a_generation_loop_costs_what_the_flop_counter_says() -> None:
    model = small(transformers.LlamaForCausalLM)

    def generate() -> None:
        torch.manual_seed(1)
        model.generate(tokens(1, 5), max_new_tokens=12, min_new_tokens=12, do_sample=False)

    flops = Flops()
    with amanda.apply(flops):
        generate()

    assert flops.total().forward == count(generate)
