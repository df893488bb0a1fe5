"""Which tensors quantizers cover, and how equal their values are: ours, torchao's and NNCF's.

One small transformer, in which a linear layer is a module, another one a function on a parameter,
attention a function, and a product of matrices an operator of Python. Each quantizer prepares it
for weights of 8 bits with a symmetric range for each output channel, and activations of 8 bits, by
its own fake quantization: torchao's of quantization-aware training, which swaps modules, NNCF's,
which hooks functions, and the Quantize tool, from outside. What is compared: which operands of
which operators were rounded, the rounded weights, and how far outputs are from those in single
precision.

It needs torchao and nncf (nox -s quantization).
"""

import copy
import logging
import math
import os
import warnings

os.environ.setdefault("NNCF_EXTENSION_LOAD_TIMEOUT", "0")  # it compiles its kernels at first
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import amanda  # noqa: E402
import nncf  # noqa: E402
import nncf.torch  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from amanda_tools.quantization import Quantize  # noqa: E402
from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torchao.quantization import quantize_  # noqa: E402
from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig  # noqa: E402

SIZE, TOKENS = 512, 600  # so that a vector has more values than 8 bits can tell apart


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(SIZE, SIZE)
        self.matrix = nn.Parameter(torch.randn(SIZE, SIZE) / SIZE**0.5)
        self.down = nn.Linear(SIZE, SIZE)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.up(x))
        y = F.linear(x, self.matrix)
        y = F.scaled_dot_product_attention(y[:, None], x[:, None], x[:, None])[:, 0]
        scores = y @ x.transpose(1, 2) / math.sqrt(SIZE)
        return self.down(scores.softmax(-1) @ y)


class Operands(amanda.Tool):
    """What each product is given."""

    def __init__(self) -> None:
        super().__init__(namespace="onnx")
        self.found: dict[tuple[str, str], Tensor] = {}
        self.add_inst_for_op(self.analyze, ops=["Gemm", "MatMul", "Attention"])
        self.lists_candidates = True

    def analyze(self, ctx: amanda.OpContext) -> None:
        ctx.insert_before_op(self.note, names=ctx.input_names, id=ctx.op.id)

    def note(self, *tensors: Tensor, names: list[str], id: str) -> None:
        for name, tensor in zip(names, tensors, strict=True):
            if name in ("A", "B", "Q", "K", "V"):
                self.found[id, name] = tensor.detach().clone()


def operands(
    model: nn.Module, x: Tensor, *tools: amanda.Tool
) -> tuple[list[str], list[Tensor], Tensor]:
    """Names and values of the operands of a model's products in their order, and what it gives."""
    seen = Operands()
    with amanda.apply(*tools, seen), torch.no_grad():
        y = model(x)
    return [" ".join(key) for key in seen.found], list(seen.found.values()), y


def is_rounded(t: Tensor) -> bool:
    """Whether there are at most 256 values in all of a tensor, or in each of its vectors."""
    vectors = (t.flatten()[None], t.flatten(0, -2)[:8], t.mT.flatten(0, -2)[:8])
    return any(all(len(v.unique()) <= 256 for v in some) for some in vectors)


def compared(one: Tensor, other: Tensor) -> str:
    """How equal two rounded weights are, in steps of the first one."""
    step = one.abs().amax(1, keepdim=True) / 127
    apart = ((one - other) / step).abs()
    equal, near = ((one == other).float().mean(), (apart < 0.01).float().mean())
    return (
        f"{equal:.2%} equal to the bit, {near:.2%} within a hundredth of a step, "
        f"{apart.max():.2g} steps apart at most"
    )


def main() -> None:
    torch.manual_seed(0)
    model, x = Block().eval(), torch.randn(2, TOKENS, SIZE)
    names, _, exact = operands(model, x)

    by_torchao = copy.deepcopy(model)
    weight = IntxFakeQuantizeConfig(torch.int8, granularity="per_channel", is_symmetric=True)
    activation = IntxFakeQuantizeConfig(torch.int8, granularity="per_token", is_symmetric=False)
    config = QATConfig(activation_config=activation, weight_config=weight, step="prepare")
    quantize_(by_torchao, config)

    options = AdvancedQuantizationParameters(disable_bias_correction=True)
    by_nncf = nncf.quantize(
        copy.deepcopy(model), nncf.Dataset([x]), subset_size=1, advanced_parameters=options
    )

    found = {
        "Quantize": operands(model, x, calibrated(model, x)),
        "narrow": operands(model, x, calibrated(model, x, narrow=True)),
        "per token": operands(model, x, Quantize(8, "per_token")),
        "torchao": operands(by_torchao, x),
        "NNCF": operands(by_nncf, x),
    }
    print(f"{'operand':36}", *(f"{name:>10}" for name in found))
    for index, name in enumerate(names):
        covered = ("rounded" if is_rounded(ts[index]) else "-" for _, ts, _ in found.values())
        print(f"{name:36}", *(f"{cell:>10}" for cell in covered))
    for index in (i for i, name in enumerate(names) if name in ("up/linear B", "linear B")):
        for one, other in (("Quantize", "torchao"), ("Quantize", "NNCF"), ("narrow", "NNCF")):
            said = compared(found[one][1][index], found[other][1][index])
            print(f"{names[index]} by {one} and {other}: {said}")
    for title, (_, _, y) in found.items():
        print(f"output of {title}: relative error {float((y - exact).norm() / exact.norm()):.3%}")


def calibrated(model: nn.Module, x: Tensor, **options: bool) -> Quantize:
    """Our tool after it has observed a model."""
    tool = Quantize(8, "minmax", **options)
    with amanda.apply(tool), torch.no_grad():
        model(x)
    tool.freeze()
    return tool


if __name__ == "__main__":
    main()
