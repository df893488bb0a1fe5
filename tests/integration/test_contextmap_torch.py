"""PyTorch's operators, run for real, against ONNX's own implementation of what the map says."""

import amanda
import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from amanda_contextmap.testing import reference
from torch import nn


class Look(amanda.Tool):
    """Keeps the operators that it sees, with all their tensors as arrays."""

    def __init__(self):
        super().__init__(namespace="onnx")
        self.seen = []
        self.add_inst_for_op(self.analyze, require_outputs=True)

    def analyze(self, ctx):
        self.seen.append(Seen(ctx))


class Seen:
    def __init__(self, ctx):
        self.type = ctx.op.type
        self.roles = list(ctx.input_names)
        self.inputs = [array(t) for t in ctx.inputs]
        self.attrs = dict(ctx.attrs)
        self.outputs = [array(t) for t in ctx.outputs]
        self.weight = ctx.weight_index


def array(tensor):
    return tensor.detach().numpy().copy()


def look(call):
    """The last operator of a call, after those that make its operands."""
    tool = Look()
    with torch.no_grad(), amanda.apply(tool):
        call()
    return tool.seen[-1]


def numbers(*shape, seed=0, positive=False):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.abs() + 0.1 if positive else values


X1, X2, X3 = numbers(2, 4, 9), numbers(2, 4, 8, 9), numbers(2, 4, 5, 6, 7)
M = numbers(3, 4)
POSITIVE = numbers(3, 4, positive=True)
INTEGERS = torch.arange(-6, 6).reshape(3, 4)
SWITCHES = M > 0
V = numbers(4)


def weight(*shape):
    return nn.Parameter(numbers(*shape, seed=1))


def recurrent(cls, **options):
    layer = cls(5, 6, **options)
    for i, parameter in enumerate(layer.parameters()):
        parameter.data = numbers(*parameter.shape, seed=i) / 2
    return lambda: layer(numbers(3, 2, 5))


# name: type, call
CALLS = {
    # convolutions
    "conv1d": ("Conv", lambda: F.conv1d(X1, weight(6, 4, 3), numbers(6), stride=2, padding=1)),
    "conv2d": ("Conv", lambda: F.conv2d(X2, weight(6, 4, 3, 2), numbers(6), (2, 1), (1, 0))),
    "conv3d": ("Conv", lambda: F.conv3d(X3, weight(6, 4, 3, 2, 1), padding=1)),
    "conv2d without bias": ("Conv", lambda: F.conv2d(X2, weight(6, 4, 3, 3))),
    "conv2d dilated": ("Conv", lambda: F.conv2d(X2, weight(6, 4, 3, 3), dilation=(2, 1))),
    "conv2d grouped": ("Conv", lambda: F.conv2d(X2, weight(6, 2, 3, 3), groups=2)),
    "conv2d depthwise": ("Conv", lambda: F.conv2d(X2, weight(8, 1, 3, 3), groups=4)),
    "conv2d same": ("Conv", lambda: F.conv2d(X2, weight(6, 4, 2, 3), padding="same")),
    "conv2d valid": ("Conv", lambda: F.conv2d(X2, weight(6, 4, 2, 3), padding="valid")),
    "conv2d of one example": ("Conv", lambda: F.conv2d(X2[0], weight(6, 4, 3, 3))),
    "conv_transpose1d": ("ConvTranspose", lambda: F.conv_transpose1d(X1, weight(4, 6, 3))),
    "conv_transpose2d": (
        "ConvTranspose",
        lambda: F.conv_transpose2d(
            X2, weight(4, 6, 3, 3), numbers(6), stride=2, padding=1, output_padding=1
        ),
    ),
    "convolution": (
        "Conv",
        lambda: torch.convolution(X2, weight(6, 4, 3, 3), None, [1], [1], [1], False, [0], 1),
    ),
    "convolution transposed": (
        "ConvTranspose",
        lambda: torch.convolution(X2, weight(4, 6, 3, 3), None, [2], [1], [1], True, [1], 1),
    ),
    # linear maps
    "linear": ("Gemm", lambda: F.linear(M, weight(5, 4), numbers(5))),
    "linear without bias": ("Gemm", lambda: F.linear(M, weight(5, 4))),
    "addmm": ("Gemm", lambda: torch.addmm(numbers(5), M, weight(4, 5), beta=2, alpha=3)),
    "matmul by a parameter": ("Gemm", lambda: M @ weight(4, 5)),
    "mm by a parameter": ("Gemm", lambda: torch.mm(M, weight(4, 5))),
    "mm": ("MatMul", lambda: torch.mm(M, M.T.contiguous())),
    "_int_mm": (
        "MatMulInteger",
        lambda: torch._int_mm(
            torch.arange(-128, 128, dtype=torch.int8).view(32, 8).repeat(1, 2),
            torch.arange(128, dtype=torch.int8).view(16, 8),
        ),
    ),
    "matmul": ("MatMul", lambda: torch.matmul(X3, numbers(7, 3))),
    "matmul with a vector": ("MatMul", lambda: torch.matmul(M, V)),
    "bmm": ("MatMul", lambda: torch.bmm(X1, numbers(2, 9, 3))),
    "mv": ("MatMul", lambda: torch.mv(M, V)),
    "dot": ("MatMul", lambda: torch.dot(V, V)),
    "einsum": ("Einsum", lambda: torch.einsum("bcx,bcx->bc", X1, X1)),
    "einsum of batches": ("MatMul", lambda: torch.einsum("bcx,bdx->bcd", X1, X1)),
    # pooling
    "max_pool1d": ("MaxPool", lambda: F.max_pool1d(X1, 3, 2, padding=1)),
    "max_pool2d": ("MaxPool", lambda: F.max_pool2d(X2, (3, 2), stride=2)),
    "max_pool2d dilated": ("MaxPool", lambda: F.max_pool2d(X2, 2, dilation=(2, 1))),
    "max_pool2d ceil": ("MaxPool", lambda: F.max_pool2d(X2, 3, 2, ceil_mode=True)),
    "max_pool2d of one example": ("MaxPool", lambda: F.max_pool2d(X2[0], 2)),
    "max_pool3d": ("MaxPool", lambda: F.max_pool3d(X3, 2)),
    "avg_pool1d": ("AveragePool", lambda: F.avg_pool1d(X1, 3)),
    "avg_pool2d": ("AveragePool", lambda: F.avg_pool2d(X2, 3, stride=2, padding=1)),
    "avg_pool2d without padding": (
        "AveragePool",
        lambda: F.avg_pool2d(X2, 3, stride=2, padding=1, count_include_pad=False),
    ),
    "avg_pool3d": ("AveragePool", lambda: F.avg_pool3d(X3, 2)),
    "adaptive_avg_pool2d to one": ("GlobalAveragePool", lambda: F.adaptive_avg_pool2d(X2, 1)),
    "adaptive_avg_pool2d": ("AveragePool", lambda: F.adaptive_avg_pool2d(X2, (4, 3))),
    "adaptive_avg_pool1d": ("AveragePool", lambda: F.adaptive_avg_pool1d(X1, 3)),
    "adaptive_avg_pool3d to one": ("GlobalAveragePool", lambda: F.adaptive_avg_pool3d(X3, 1)),
    "adaptive_max_pool2d to one": ("GlobalMaxPool", lambda: F.adaptive_max_pool2d(X2, 1)),
    "adaptive_max_pool2d": ("MaxPool", lambda: F.adaptive_max_pool2d(X2, (4, 3))),
    # resizing
    "nearest to a size": ("Resize", lambda: F.interpolate(X2, (12, 20), mode="nearest")),
    "nearest by a factor": ("Resize", lambda: F.interpolate(X2, scale_factor=2.0)),
    "nearest-exact": ("Resize", lambda: F.interpolate(X2, (12, 20), mode="nearest-exact")),
    "bilinear": ("Resize", lambda: F.interpolate(X2, (12, 20), mode="bilinear")),
    "bilinear by corners": (
        "Resize",
        lambda: F.interpolate(X2, (12, 20), mode="bilinear", align_corners=True),
    ),
    "linear1d": ("Resize", lambda: F.interpolate(X1, (14,), mode="linear")),
    "bicubic": ("Resize", lambda: F.interpolate(X2, (12, 20), mode="bicubic")),
    "pixel_shuffle": ("DepthToSpace", lambda: F.pixel_shuffle(X2, 2)),
    "grid_sample": (
        "GridSample",
        lambda: F.grid_sample(X2, numbers(2, 3, 3, 2) / 3, align_corners=False),
    ),
    # normalization, dropout
    "batch_norm": (
        "BatchNormalization",
        lambda: F.batch_norm(X2, V, POSITIVE[0], numbers(4), numbers(4), eps=1e-3),
    ),
    "layer_norm": (
        "LayerNormalization",
        lambda: F.layer_norm(X2, (8, 9), M[0, 0] + X2[0, 0], X2[0, 1]),
    ),
    "layer_norm without bias": ("LayerNormalization", lambda: F.layer_norm(M, (4,), V, eps=1e-3)),
    "group_norm": ("GroupNormalization", lambda: F.group_norm(X2, 2, V, V)),
    "instance_norm": ("InstanceNormalization", lambda: F.instance_norm(X2, weight=V, bias=V)),
    "rms_norm": ("RMSNormalization", lambda: F.rms_norm(M, (4,), V)),
    "rms_norm with epsilon": ("RMSNormalization", lambda: F.rms_norm(M, (4,), V, eps=0.1)),
    "dropout in evaluation": ("Dropout", lambda: F.dropout(M, 0.5, training=False)),
    # embeddings, attention
    "embedding": ("Gather", lambda: F.embedding(torch.tensor([[0, 2], [1, 1]]), weight(3, 4))),
    "attention": (
        "Attention",
        lambda: F.scaled_dot_product_attention(X2, X2, X2, scale=0.3),
    ),
    "attention causal": (
        "Attention",
        lambda: F.scaled_dot_product_attention(X2, X2, X2, is_causal=True),
    ),
    "attention masked": (
        "Attention",
        lambda: F.scaled_dot_product_attention(X2, X2, X2, numbers(8, 8) > -1),
    ),
    "attention with a bias": (
        "Attention",
        lambda: F.scaled_dot_product_attention(X2, X2, X2, numbers(8, 8)),
    ),
    "attention of one head": ("Attention", lambda: F.scaled_dot_product_attention(X1, X1, X1)),
    # recurrence
    "lstm": ("LSTM", recurrent(nn.LSTM)),
    "lstm without bias": ("LSTM", recurrent(nn.LSTM, bias=False)),
    "lstm with the batch first": ("LSTM", recurrent(nn.LSTM, batch_first=True)),
    "lstm in both directions": ("LSTM", recurrent(nn.LSTM, bidirectional=True)),
    "gru in both directions": ("GRU", recurrent(nn.GRU, bidirectional=True, batch_first=True)),
    "gru": ("GRU", recurrent(nn.GRU)),
    "rnn": ("RNN", recurrent(nn.RNN)),
    # losses
    "cross_entropy": (
        "SoftmaxCrossEntropyLoss",
        lambda: F.cross_entropy(M, torch.tensor([0, 3, 1]), POSITIVE[0]),
    ),
    "cross_entropy summed": (
        "SoftmaxCrossEntropyLoss",
        lambda: F.cross_entropy(M, torch.tensor([0, -100, 1]), reduction="sum"),
    ),
    "nll_loss": (
        "NegativeLogLikelihoodLoss",
        lambda: F.nll_loss(M, torch.tensor([0, 3, 1]), reduction="none"),
    ),
    # arithmetic
    "add": ("Add", lambda: M + V),
    "add a number": ("Add", lambda: M + 2.5),
    "sub": ("Sub", lambda: M - V),
    "sub from a number": ("Sub", lambda: 2.5 - M),
    "rsub": ("Sub", lambda: torch.rsub(M, V)),
    "mul": ("Mul", lambda: M * V),
    "mul by a number": ("Mul", lambda: 3 * M),
    "div": ("Div", lambda: M / V),
    "div by a number": ("Div", lambda: M / 4),
    "remainder": ("Mod", lambda: INTEGERS % 4),
    "fmod": ("Mod", lambda: torch.fmod(M, V)),
    "pow": ("Pow", lambda: torch.pow(POSITIVE, V)),
    "pow of a number": ("Pow", lambda: M**2),
    "maximum": ("Max", lambda: torch.maximum(M, V)),
    "minimum": ("Min", lambda: torch.minimum(M, V)),
    "max of two": ("Max", lambda: torch.max(M, -M)),
    "abs": ("Abs", lambda: M.abs()),
    "neg": ("Neg", lambda: -M),
    "reciprocal": ("Reciprocal", lambda: M.reciprocal()),
    "sqrt": ("Sqrt", lambda: POSITIVE.sqrt()),
    "exp": ("Exp", lambda: M.exp()),
    "log": ("Log", lambda: POSITIVE.log()),
    "erf": ("Erf", lambda: M.erf()),
    "sign": ("Sign", lambda: M.sign()),
    "floor": ("Floor", lambda: M.floor()),
    "ceil": ("Ceil", lambda: M.ceil()),
    "round": ("Round", lambda: M.round()),
    "sin": ("Sin", lambda: M.sin()),
    "cos": ("Cos", lambda: M.cos()),
    "tan": ("Tan", lambda: M.tan()),
    "asin": ("Asin", lambda: (M / 4).asin()),
    "atan": ("Atan", lambda: M.atan()),
    "sinh": ("Sinh", lambda: M.sinh()),
    "cosh": ("Cosh", lambda: M.cosh()),
    "asinh": ("Asinh", lambda: M.asinh()),
    "acosh": ("Acosh", lambda: (POSITIVE + 1).acosh()),
    "clamp": ("Clip", lambda: M.clamp(-0.5, 0.5)),
    "clamp_min": ("Clip", lambda: M.clamp_min(0.1)),
    "clamp from above": ("Clip", lambda: M.clamp(max=0.2)),
    # comparisons, logic
    "eq": ("Equal", lambda: M == V),
    "lt": ("Less", lambda: M < 0.5),
    "le": ("LessOrEqual", lambda: M <= V),
    "gt": ("Greater", lambda: M > V),
    "ge": ("GreaterOrEqual", lambda: M >= V),
    "logical_and": ("And", lambda: torch.logical_and(SWITCHES, SWITCHES[0])),
    "logical_or": ("Or", lambda: torch.logical_or(SWITCHES, SWITCHES[0])),
    "logical_xor": ("Xor", lambda: torch.logical_xor(SWITCHES, SWITCHES[0])),
    "logical_not": ("Not", lambda: torch.logical_not(SWITCHES)),
    "bitwise_and": ("BitwiseAnd", lambda: INTEGERS & 3),
    "bitwise_and of booleans": ("And", lambda: SWITCHES & SWITCHES[0]),
    "bitwise_not of booleans": ("Not", lambda: ~SWITCHES),
    "bitwise_not": ("BitwiseNot", lambda: ~INTEGERS),
    "isnan": ("IsNaN", lambda: torch.ops.aten.isnan(M)),
    "isinf": ("IsInf", lambda: torch.ops.aten.isinf(M)),
    "where": ("Where", lambda: torch.where(SWITCHES, M, V)),
    "where with a number": ("Where", lambda: torch.where(SWITCHES, M, 2.0)),
    "masked_fill": ("Where", lambda: M.masked_fill(SWITCHES, -1.5)),
    # activations
    "relu": ("Relu", lambda: F.relu(M)),
    "relu_": ("Relu", lambda: torch.relu_(M.clone())),
    "relu6": ("Clip", lambda: F.relu6(4 * M)),
    "hardtanh": ("Clip", lambda: F.hardtanh(M, -0.3, 0.4)),
    "leaky_relu": ("LeakyRelu", lambda: F.leaky_relu(M, 0.2)),
    "prelu": ("PRelu", lambda: F.prelu(X2, V)),
    "prelu of one slope": ("PRelu", lambda: F.prelu(X2, V[:1])),
    "elu": ("Elu", lambda: F.elu(M, 0.7)),
    "selu": ("Selu", lambda: F.selu(M)),
    "celu": ("Celu", lambda: F.celu(M, 0.7)),
    "gelu": ("Gelu", lambda: F.gelu(M)),
    "gelu by tanh": ("Gelu", lambda: F.gelu(M, approximate="tanh")),
    "silu": ("Swish", lambda: F.silu(M)),
    "mish": ("Mish", lambda: F.mish(M)),
    "hardswish": ("HardSwish", lambda: F.hardswish(4 * M)),
    "hardsigmoid": ("HardSigmoid", lambda: F.hardsigmoid(4 * M)),
    "sigmoid": ("Sigmoid", lambda: M.sigmoid()),
    "tanh": ("Tanh", lambda: M.tanh()),
    "softplus": ("Softplus", lambda: F.softplus(M)),
    "hardshrink": ("Shrink", lambda: F.hardshrink(M, 0.4)),
    "softshrink": ("Shrink", lambda: F.softshrink(M, 0.4)),
    "softsign": ("Softsign", lambda: F.softsign(M)),
    # along axes
    "softmax": ("Softmax", lambda: X2.softmax(1)),
    "softmax of the last axis": ("Softmax", lambda: X2.softmax(-1)),
    "log_softmax": ("LogSoftmax", lambda: X2.log_softmax(1)),
    "sum": ("ReduceSum", lambda: X2.sum()),
    "sum along axes": ("ReduceSum", lambda: X2.sum((1, -1), keepdim=True)),
    "mean": ("ReduceMean", lambda: X2.mean((2, 3))),
    "prod": ("ReduceProd", lambda: X2.prod(1)),
    "amax": ("ReduceMax", lambda: X2.amax((0, 1))),
    "amin": ("ReduceMin", lambda: X2.amin()),
    "max": ("ReduceMax", lambda: X2.max()),
    "max along an axis": ("ReduceMax", lambda: X2.max(dim=1)),
    "logsumexp": ("ReduceLogSumExp", lambda: X2.logsumexp(1)),
    "norm": ("ReduceL2", lambda: torch.linalg.vector_norm(X2, dim=(1, 2))),
    "norm of order one": ("ReduceL1", lambda: torch.linalg.vector_norm(X2, 1, dim=1)),
    "argmax": ("ArgMax", lambda: X2.argmax(1)),
    "argmin": ("ArgMin", lambda: X2.argmin(-1, keepdim=True)),
    "cumsum": ("CumSum", lambda: X2.cumsum(-1)),
    "topk": ("TopK", lambda: X2.topk(3, dim=2)),
    "topk smallest": ("TopK", lambda: X2.topk(3, largest=False)),
    # shapes
    "view": ("Reshape", lambda: X2.view(2, -1)),
    "reshape": ("Reshape", lambda: X2.reshape(-1, 9)),
    "flatten": ("Flatten", lambda: X2.flatten(1)),
    "flatten in the middle": ("Reshape", lambda: X3.flatten(1, 2)),
    "unflatten": ("Reshape", lambda: X2.unflatten(1, (2, 2))),
    "squeeze": ("Squeeze", lambda: numbers(1, 3, 1).squeeze()),
    "squeeze an axis": ("Squeeze", lambda: numbers(1, 3, 1).squeeze(-1)),
    "squeeze nothing": ("Squeeze", lambda: numbers(1, 3, 1).squeeze(1)),
    "unsqueeze": ("Unsqueeze", lambda: X2.unsqueeze(-1)),
    "expand": ("Expand", lambda: numbers(3, 1).expand(2, -1, 4)),
    "repeat": ("Tile", lambda: M.repeat(2, 3)),
    "t": ("Transpose", lambda: M.t()),
    "transpose": ("Transpose", lambda: X2.transpose(1, -1)),
    "mT": ("Transpose", lambda: X2.mT),
    "permute": ("Transpose", lambda: X2.permute(0, 2, 3, -3)),
    "movedim": ("Transpose", lambda: X2.movedim((1, 0), (3, 1))),
    # parts
    "cat": ("Concat", lambda: torch.cat([X2, X2, X2], -3)),
    "split": ("Split", lambda: X2.split(3, 1)),
    "split by sizes": ("Split", lambda: X2.split([1, 3], 1)),
    "chunk": ("Split", lambda: X2.chunk(2, -1)),
    "slice": ("Slice", lambda: X2[1:]),
    "slice by steps": ("Slice", lambda: torch.ops.aten.slice(X2, 3, 1, -1, 2)),
    "narrow": ("Slice", lambda: X2.narrow(-1, 2, 4)),
    "select": ("Gather", lambda: X2[1]),
    "pad": ("Pad", lambda: F.pad(X2, (1, 2, 3, 0), value=1.5)),
    "pad by reflection": ("Pad", lambda: F.pad(X2, (1, 2, 3, 0), mode="reflect")),
    "pad by edges": ("Pad", lambda: F.pad(X2, (1, 2, 3, 0), mode="replicate")),
    "pad around": ("Pad", lambda: F.pad(X2, (1, 2, 3, 0), mode="circular")),
    "triu": ("Trilu", lambda: M.triu(1)),
    "tril": ("Trilu", lambda: M.tril()),
    # indices
    "index_select": ("Gather", lambda: X2.index_select(1, torch.tensor([2, 0]))),
    "gather": ("GatherElements", lambda: M.gather(1, torch.tensor([[0, 1], [1, 3], [2, 2]]))),
    "index by a tensor": ("Gather", lambda: X2[:, torch.tensor([2, 0])]),
    "arange": ("Range", lambda: torch.arange(2, 11, 3)),
    "scatter": (
        "ScatterElements",
        lambda: M.scatter(1, torch.tensor([[0], [1], [2]]), numbers(3, 1)),
    ),
    "scatter_add": (
        "ScatterElements",
        lambda: M.scatter_add(1, torch.tensor([[0, 0], [1, 1], [2, 2]]), numbers(3, 2)),
    ),
    # data types, copies
    "to": ("Cast", lambda: M.to(torch.float64)),
    "int": ("Cast", lambda: M.int()),
    "clone": ("Identity", lambda: M.clone()),
    "copy_": ("Identity", lambda: torch.empty(3, 4).copy_(M)),
    "copy_ to another type": ("Cast", lambda: torch.empty(3, 4, dtype=torch.int64).copy_(M)),
    "copy_ to another shape": ("Expand", lambda: torch.empty(3, 4).copy_(V)),
    # filled
    "arange of floats": ("Range", lambda: torch.arange(1, 7, dtype=torch.float32)),
    "full": ("ConstantOfShape", lambda: torch.full((2, 3), 4)),
    "full of floats": ("ConstantOfShape", lambda: torch.full((2, 3), 4, dtype=torch.float32)),
    "zeros_like": ("Expand", lambda: torch.zeros_like(X2)),
    "ones_like": ("Expand", lambda: torch.ones_like(INTEGERS)),
    "ones_like of another type": ("Expand", lambda: torch.ones_like(INTEGERS, dtype=torch.bool)),
    "full_like": ("Expand", lambda: torch.full_like(M, 3)),
    "contiguous": ("Identity", lambda: M.t().contiguous().contiguous()),
}


@pytest.mark.parametrize(("type", "call"), CALLS.values(), ids=CALLS)
def test_it_computes_what_onnx_says(type, call):
    seen = look(call)
    assert seen.type == type
    found = reference(seen.type, seen.roles, seen.inputs, seen.attrs, len(seen.outputs))
    for expected, given in zip(found, seen.outputs, strict=True):
        np.testing.assert_allclose(given, expected, rtol=2e-5, atol=2e-5)
        assert given.shape == np.shape(expected)
        assert given.dtype == np.asarray(expected).dtype
