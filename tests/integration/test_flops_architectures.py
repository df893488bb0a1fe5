"""FLOPs of whole models, against PyTorch's own counter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import amanda
import pytest
import torch
import transformers
from amanda_tools.flops import Flops
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

if TYPE_CHECKING:
    from collections.abc import Callable

    Loss = Callable[[], torch.Tensor]

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


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(0, 60, shape)


def resnet() -> tuple[nn.Module, Loss]:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 24], depths=[1, 2, 1], layer_type="bottleneck"
    )
    model = transformers.ResNetModel(config)
    return model, lambda: model(torch.randn(2, 3, 64, 64)).pooler_output.sum()


class DenseLayer(nn.Sequential):
    def __init__(self, channels: int, growth: int) -> None:
        super().__init__(
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, 2 * growth, 1, bias=False),
            nn.BatchNorm2d(2 * growth),
            nn.ReLU(inplace=True),
            nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, super().forward(x)], 1)


def densenet() -> tuple[nn.Module, Loss]:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        *(DenseLayer(8 + 4 * i, 4) for i in range(3)),
        nn.Conv2d(20, 10, 1),
        nn.AvgPool2d(2),
        *(DenseLayer(10 + 4 * i, 4) for i in range(2)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(18, 5),
    )
    return model, lambda: model(torch.randn(2, 3, 32, 32)).sum()


def vit(attention: str = "eager") -> tuple[nn.Module, Loss]:
    config = transformers.ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
        image_size=32, patch_size=8, attn_implementation=attention,
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config)
    return model, lambda: model(torch.randn(2, 3, 32, 32)).logits.sum()


def convnext() -> tuple[nn.Module, Loss]:
    config = transformers.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1])
    model = transformers.ConvNextForImageClassification(config)
    return model, lambda: model(torch.randn(2, 3, 64, 64)).logits.sum()


def bert(attention: str = "eager") -> tuple[nn.Module, Loss]:
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=40, attn_implementation=attention,
    )  # fmt: skip
    model = transformers.BertForMaskedLM(config)
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    return model, lambda: model(ids(2, 9), attention_mask=mask, labels=ids(2, 9)).loss


def gpt2(attention: str = "eager") -> tuple[nn.Module, Loss]:
    config = transformers.GPT2Config(
        vocab_size=60, n_positions=32, n_embd=24, n_layer=2, n_head=3, attn_implementation=attention
    )
    model = transformers.GPT2LMHeadModel(config)
    return model, lambda: model(ids(2, 9), labels=ids(2, 9)).loss


def llama(attention: str = "eager") -> tuple[nn.Module, Loss]:
    config = transformers.LlamaConfig(
        vocab_size=60, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, attn_implementation=attention,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    return model, lambda: model(ids(2, 9), labels=ids(2, 9)).loss


def t5() -> tuple[nn.Module, Loss]:
    config = transformers.T5Config(
        vocab_size=60,
        d_model=24,
        d_kv=8,
        d_ff=40,
        num_layers=2,
        num_heads=3,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    model = transformers.T5ForConditionalGeneration(config)
    return model, lambda: model(ids(2, 9), labels=ids(2, 7)).loss


def whisper(attention: str = "eager") -> tuple[nn.Module, Loss]:
    config = transformers.WhisperConfig(
        vocab_size=60, num_mel_bins=16, d_model=24, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=3, decoder_attention_heads=3, encoder_ffn_dim=40,
        decoder_ffn_dim=40, max_source_positions=25, max_target_positions=20, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, attn_implementation=attention,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config)
    return model, lambda: model(torch.randn(2, 16, 50), labels=ids(2, 7)).loss


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(60, 12)
        self.lstm = nn.LSTM(12, 10, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(20, 5)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(self.embedding(words))[0])


def lstm() -> tuple[nn.Module, Loss]:
    # in double precision, since oneDNN's kernel is one that PyTorch's counter does not know
    model = Tagger().double()
    return model, lambda: model(ids(3, 7)).sum()


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.deep = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2)
        self.up = nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1, groups=2)
        self.out = nn.Conv2d(9, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.cat([x, self.up(self.deep(self.down(x)))], 1))


def unet() -> tuple[nn.Module, Loss]:
    model = UNet()
    return model, lambda: model(torch.randn(2, 3, 16, 16)).sum()


def mixtral() -> tuple[nn.Module, Loss]:
    config = transformers.MixtralConfig(
        vocab_size=60, hidden_size=24, intermediate_size=40, num_hidden_layers=1,
        num_attention_heads=3, num_key_value_heads=3, num_local_experts=4,
        attn_implementation="eager", experts_implementation="eager",
    )  # fmt: skip
    model = transformers.MixtralForCausalLM(config)
    return model, lambda: model(ids(2, 9), labels=ids(2, 9)).loss


def transformer() -> tuple[nn.Module, Loss]:
    model = nn.Transformer(24, 3, 1, 2, 40, batch_first=True)
    return model, lambda: model(torch.randn(2, 9, 24), torch.randn(2, 7, 24)).sum()


MODELS = {
    build.__name__: build
    for build in (
        resnet, densenet, vit, convnext, bert, gpt2, llama, t5, whisper, lstm,
        unet, mixtral, transformer,
    )
}  # fmt: skip
FUSED = {build.__name__: build for build in (vit, bert, gpt2, llama, whisper)}


def count(run: Callable[[], object]) -> int:
    """FLOPs by PyTorch's counter."""
    known = {**CPU_ATTENTION, aten.convolution_backward: convolution_backward}
    with FlopCounterMode(display=False, custom_mapping=known) as counter:
        run()
    return counter.get_total_flops()


def assert_same_flops(build: Callable[[], tuple[nn.Module, Loss]]) -> None:
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


@pytest.mark.parametrize("name", MODELS)
def test_inference_takes_the_flops_of_the_forward_pass_alone(name: str) -> None:
    torch.manual_seed(0)
    model, loss = MODELS[name]()
    model.eval()

    def infer() -> None:
        torch.manual_seed(1)
        with torch.inference_mode():
            loss()

    flops = Flops()
    with amanda.apply(flops):
        infer()

    assert (flops.total().forward, flops.total().backward) == (count(infer), 0)


def test_a_generation_loop_costs_what_the_flop_counter_says() -> None:
    model, _ = llama()

    def generate() -> None:
        torch.manual_seed(1)
        model.generate(ids(1, 5), max_new_tokens=12, min_new_tokens=12, do_sample=False)

    flops = Flops()
    with amanda.apply(flops):
        generate()

    assert flops.total().forward == count(generate)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_those_of_the_model(name: str) -> None:
    model, loss = MODELS[name]()
    flops = Flops()
    with amanda.apply(flops), torch.no_grad():
        loss()

    assert flops.total().params == sum(p.numel() for p in model.parameters())
