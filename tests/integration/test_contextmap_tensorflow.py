"""TensorFlow's operators, run for real, against ONNX's own implementation of what the map says."""

import itertools

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda_contextmap.testing import reference

RAW = tf.raw_ops


class Look(amanda.Tool):
    """Keeps the operators of one type, with their tensors as arrays."""

    def __init__(self, type):
        super().__init__(namespace="onnx")
        self.seen = []
        self.add_inst_for_op(self.analyze, ops=[type])

    def analyze(self, ctx):
        seen = Seen(ctx)
        self.seen.append(seen)
        ctx.insert_before_op(seen.before)
        ctx.insert_after_op(seen.after)


class Seen:
    def __init__(self, ctx):
        self.roles = list(ctx.input_names)
        self.attrs = dict(ctx.attrs)
        self.weight = ctx.weight_index

    def before(self, *inputs):
        self.inputs = [tensor.numpy() for tensor in inputs]

    def after(self, *outputs):
        self.outputs = [tensor.numpy() for tensor in outputs]


_calls = itertools.count()


def look(type, call, argument, shape=None):
    """The last operator of a type in a function of a tensor, of which it may know less."""
    name = f"call_{next(_calls)}"  # for ids of its own

    def function(x):
        with tf.name_scope(name):
            return call(x)

    argument = tf.constant(argument)
    spec = tf.TensorSpec(argument.shape if shape is None else shape, argument.dtype, f"{name}_x")
    tool = Look(type)
    with amanda.apply(tool):
        tf.function(function, input_signature=[spec], autograph=False)(argument)
    return tool.seen[-1]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def variable(*shape):
    return tf.Variable(numbers(*shape, seed=1))


X, X3 = numbers(2, 8, 9, 4), numbers(2, 5, 6, 7, 4)
M, V = numbers(3, 4), numbers(4)
POSITIVE = np.abs(M) + 0.1
INTEGERS = np.arange(-6, 6).reshape(3, 4)
SWITCHES = M > 0
KERNEL, KERNEL_3D = variable(3, 2, 4, 6), variable(2, 3, 1, 4, 6)
GROUPED = variable(3, 3, 2, 6)
DEPTHWISE, TRANSPOSED = variable(3, 3, 4, 2), variable(3, 3, 6, 4)
MATRIX, MATRIX_OI = variable(4, 5), variable(5, 4)
INT8 = tf.Variable(np.arange(-128, 112, 12, np.int8).reshape(5, 4))


def conv(filters=KERNEL, strides=(1, 1, 1, 1), padding="SAME", **options):
    return lambda x: RAW.Conv2D(
        input=x, filter=filters, strides=list(strides), padding=padding, **options
    )


def depthwise(strides=(1, 1, 1, 1), padding="SAME", **options):
    return lambda x: RAW.DepthwiseConv2dNative(
        input=x, filter=DEPTHWISE, strides=list(strides), padding=padding, **options
    )


def transposed(size, stride, padding):
    return lambda x: RAW.Conv2DBackpropInput(
        input_sizes=[2, *size, 6],
        filter=TRANSPOSED,
        out_backprop=x,
        strides=[1, stride, stride, 1],
        padding=padding,
    )


def pool(op, window, stride, padding):
    name = "value" if op is RAW.AvgPool else "input"
    return lambda x: op(
        **{name: x},
        ksize=[1, *window, 1],
        strides=[1, *([stride] * len(window)), 1],
        padding=padding,
    )


def resize(op, corners=False, centers=False):
    return lambda x: op(images=x, size=[12, 20], align_corners=corners, half_pixel_centers=centers)


def batch_norm(op):
    return lambda x: op(
        x=x,
        scale=V,
        offset=V,
        mean=V,
        variance=POSITIVE[0],
        epsilon=1e-2,
        is_training=False,
    )[0]


def reduction(op, axes, keepdims=False):
    return lambda x: op(input=x, axis=axes, keep_dims=keepdims)


def unary(op, argument="x"):
    return lambda x: op(**{argument: x})


def by(op, y):
    return lambda x: op(x=x, y=y)


def stepped(x):
    return x[1:, ::2, -1:0:-2]


# name: type, function, its argument
CALLS = {
    # convolutions
    "Conv2D": ("Conv", conv(), X),
    "Conv2D with strides": ("Conv", conv(strides=(1, 2, 3, 1)), X),
    "Conv2D valid": ("Conv", conv(padding="VALID"), X),
    "Conv2D dilated": ("Conv", conv(dilations=[1, 2, 3, 1]), X),
    "Conv2D explicit": (
        "Conv",
        conv(padding="EXPLICIT", explicit_paddings=[0, 0, 1, 2, 0, 3, 0, 0]),
        X,
    ),
    "Conv2D grouped": ("Conv", conv(GROUPED), X),
    "Conv3D": (
        "Conv",
        lambda x: RAW.Conv3D(input=x, filter=KERNEL_3D, strides=[1, 2, 1, 1, 1], padding="SAME"),
        X3,
    ),
    "Conv": (
        "Conv",
        lambda x: RAW.Conv(input=x, filter=KERNEL, strides=[1, 2, 2, 1], padding="SAME"),
        X,
    ),
    "DepthwiseConv2dNative": ("Conv", depthwise(), X),
    "DepthwiseConv2dNative with strides": ("Conv", depthwise((1, 2, 2, 1), "VALID"), X),
    "Conv2DBackpropInput": ("ConvTranspose", transposed((16, 18), 2, "SAME"), X),
    "Conv2DBackpropInput to the smaller size": (
        "ConvTranspose",
        transposed((15, 17), 2, "SAME"),
        X,
    ),
    "Conv2DBackpropInput valid": ("ConvTranspose", transposed((17, 19), 2, "VALID"), X),
    "Conv2DBackpropInput with a large stride": (
        "ConvTranspose",
        transposed((32, 36), 4, "VALID"),
        X,
    ),
    # linear maps
    "MatMul by a variable": ("Gemm", lambda x: tf.matmul(x, MATRIX), M),
    "MatMul by a transposed variable": (
        "Gemm",
        lambda x: tf.matmul(x, MATRIX_OI, transpose_b=True),
        M,
    ),
    "MatMul": ("MatMul", lambda x: tf.matmul(x, x[:, :3]), numbers(3, 3)),
    "MatMul with flags": (
        "MatMul",
        lambda x: tf.matmul(x, x, transpose_a=True, transpose_b=True),
        numbers(3, 3),
    ),
    "BatchMatMulV2": ("MatMul", lambda x: tf.matmul(x, x, transpose_b=True), X),
    "BatchMatMulV3 by a variable": (
        "Gemm",
        lambda x: RAW.BatchMatMulV3(x=x, y=MATRIX, Tout=tf.float32),
        M,
    ),
    "BatchMatMulV3 of integers": (
        "MatMulInteger",
        lambda x: tf.matmul(x, INT8, transpose_b=True, output_type=tf.int32),
        INTEGERS.astype(np.int8),
    ),
    "BatchMatMulV2 by a variable": (
        "Gemm",
        lambda x: RAW.BatchMatMulV2(x=x, y=MATRIX, adj_x=False, adj_y=False),
        numbers(2, 3, 4),
    ),
    "Einsum by a variable": (
        "Gemm",
        lambda x: RAW.Einsum(inputs=[x, MATRIX], equation="abcd,de->abce"),
        X,
    ),
    "Einsum of batches": (
        "MatMul",
        lambda x: RAW.Einsum(inputs=[x, x * 2], equation="aecd,abcd->acbe"),
        X,
    ),
    "Einsum": ("Einsum", lambda x: RAW.Einsum(inputs=[x, x], equation="abcd,abcd->ab"), X),
    "BiasAdd": ("Add", lambda x: RAW.BiasAdd(value=x, bias=V), X),
    # pooling
    "MaxPool": ("MaxPool", pool(RAW.MaxPool, (3, 2), 2, "SAME"), X),
    "MaxPool valid": ("MaxPool", pool(RAW.MaxPool, (3, 2), 2, "VALID"), X),
    "MaxPool3D": ("MaxPool", pool(RAW.MaxPool3D, (2, 2, 2), 2, "SAME"), X3),
    "MaxPoolWithArgmax": ("MaxPool", pool(RAW.MaxPoolWithArgmax, (2, 2), 2, "SAME"), X),
    "AvgPool": ("AveragePool", pool(RAW.AvgPool, (3, 3), 2, "SAME"), X),
    "AvgPool3D": ("AveragePool", pool(RAW.AvgPool3D, (2, 2, 2), 2, "SAME"), X3),
    # resizing
    "ResizeNearestNeighbor": ("Resize", resize(RAW.ResizeNearestNeighbor), X),
    "ResizeNearestNeighbor by centers": (
        "Resize",
        resize(RAW.ResizeNearestNeighbor, centers=True),
        X,
    ),
    "ResizeBilinear": ("Resize", resize(RAW.ResizeBilinear), X),
    "ResizeBilinear by centers": ("Resize", resize(RAW.ResizeBilinear, centers=True), X),
    "ResizeBilinear by corners": ("Resize", resize(RAW.ResizeBilinear, corners=True), X),
    "DepthToSpace": ("DepthToSpace", lambda x: RAW.DepthToSpace(input=x, block_size=2), X),
    "SpaceToDepth": (
        "SpaceToDepth",
        lambda x: RAW.SpaceToDepth(input=x, block_size=2),
        numbers(2, 4, 6, 3),
    ),
    # normalization
    "FusedBatchNorm": ("BatchNormalization", batch_norm(RAW.FusedBatchNorm), X),
    "FusedBatchNormV3": ("BatchNormalization", batch_norm(RAW.FusedBatchNormV3), X),
    "LRN": (
        "LRN",
        lambda x: RAW.LRN(input=x, depth_radius=1, bias=1.5, alpha=0.3, beta=0.6),
        numbers(4, 3, 3, 4),  # ONNX's own implementation takes the batch's size for the channels'
    ),
    # embeddings, losses
    "GatherV2": ("Gather", lambda x: tf.gather(x, [[0, 2], [1, 1]]), M),
    "GatherV2 along an axis": ("Gather", lambda x: tf.gather(x, [2, 0], axis=-1), M),
    "GatherNd": ("GatherND", lambda x: tf.gather_nd(x, [[0, 1], [2, 3]]), M),
    "SparseSoftmaxCrossEntropyWithLogits": (
        "SoftmaxCrossEntropyLoss",
        lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits([0, 3, 1], x),
        M,
    ),
    # arithmetic
    "AddV2": ("Add", by(RAW.AddV2, V), M),
    "Add": ("Add", by(RAW.Add, V), M),
    "AddN": ("Sum", lambda x: RAW.AddN(inputs=[x, x, x]), M),
    "Sub": ("Sub", by(RAW.Sub, V), M),
    "Mul": ("Mul", by(RAW.Mul, V), M),
    "RealDiv": ("Div", by(RAW.RealDiv, V), M),
    "Div of integers": ("Div", by(RAW.TruncateDiv, tf.constant(4, tf.int64)), INTEGERS),
    "FloorMod": ("Mod", by(RAW.FloorMod, tf.constant(4, tf.int64)), INTEGERS),
    "TruncateMod": ("Mod", by(RAW.TruncateMod, V), M),
    "Pow": ("Pow", by(RAW.Pow, V), POSITIVE),
    "Maximum": ("Max", by(RAW.Maximum, V), M),
    "Minimum": ("Min", by(RAW.Minimum, V), M),
    "Abs": ("Abs", unary(RAW.Abs), M),
    "Neg": ("Neg", unary(RAW.Neg), M),
    "Reciprocal": ("Reciprocal", unary(RAW.Reciprocal), M),
    "Sqrt": ("Sqrt", unary(RAW.Sqrt), POSITIVE),
    "Exp": ("Exp", unary(RAW.Exp), M),
    "Log": ("Log", unary(RAW.Log), POSITIVE),
    "Erf": ("Erf", unary(RAW.Erf), M),
    "Sign": ("Sign", unary(RAW.Sign), M),
    "Floor": ("Floor", unary(RAW.Floor), M),
    "Ceil": ("Ceil", unary(RAW.Ceil), M),
    "Round": ("Round", unary(RAW.Round), M),
    "Sin": ("Sin", unary(RAW.Sin), M),
    "Cos": ("Cos", unary(RAW.Cos), M),
    "Tan": ("Tan", unary(RAW.Tan), M),
    "Asin": ("Asin", unary(RAW.Asin), M / 4),
    "Atan": ("Atan", unary(RAW.Atan), M),
    "Sinh": ("Sinh", unary(RAW.Sinh), M),
    "Cosh": ("Cosh", unary(RAW.Cosh), M),
    "Asinh": ("Asinh", unary(RAW.Asinh), M),
    "Acosh": ("Acosh", unary(RAW.Acosh), POSITIVE + 1),
    "ClipByValue": (
        "Clip",
        lambda x: RAW.ClipByValue(t=x, clip_value_min=-0.5, clip_value_max=0.5),
        M,
    ),
    # comparisons, logic
    "Equal": ("Equal", by(RAW.Equal, V), M),
    "Less": ("Less", by(RAW.Less, V), M),
    "LessEqual": ("LessOrEqual", by(RAW.LessEqual, V), M),
    "Greater": ("Greater", by(RAW.Greater, V), M),
    "GreaterEqual": ("GreaterOrEqual", by(RAW.GreaterEqual, V), M),
    "LogicalAnd": ("And", by(RAW.LogicalAnd, SWITCHES[0]), SWITCHES),
    "LogicalOr": ("Or", by(RAW.LogicalOr, SWITCHES[0]), SWITCHES),
    "LogicalNot": ("Not", unary(RAW.LogicalNot), SWITCHES),
    "BitwiseAnd": ("BitwiseAnd", by(RAW.BitwiseAnd, tf.constant(3, tf.int64)), INTEGERS),
    "Invert": ("BitwiseNot", unary(RAW.Invert), INTEGERS),
    "IsNan": ("IsNaN", unary(RAW.IsNan), M),
    "IsInf": ("IsInf", unary(RAW.IsInf), M),
    "SelectV2": ("Where", lambda x: RAW.SelectV2(condition=SWITCHES, t=x, e=V), M),
    "Select": ("Where", lambda x: RAW.Select(condition=SWITCHES, x=x, y=-x), M),
    # activations
    "Relu": ("Relu", unary(RAW.Relu, "features"), M),
    "Relu6": ("Clip", unary(RAW.Relu6, "features"), 6 * M),
    "LeakyRelu": ("LeakyRelu", lambda x: RAW.LeakyRelu(features=x, alpha=0.3), M),
    "Elu": ("Elu", unary(RAW.Elu, "features"), M),
    "Selu": ("Selu", unary(RAW.Selu, "features"), M),
    "Sigmoid": ("Sigmoid", unary(RAW.Sigmoid), M),
    "Tanh": ("Tanh", unary(RAW.Tanh), M),
    "Softplus": ("Softplus", unary(RAW.Softplus, "features"), M),
    "Softsign": ("Softsign", unary(RAW.Softsign, "features"), M),
    # along axes
    "Softmax": ("Softmax", unary(RAW.Softmax, "logits"), M),
    "LogSoftmax": ("LogSoftmax", unary(RAW.LogSoftmax, "logits"), M),
    "Sum": ("ReduceSum", reduction(RAW.Sum, [1, -1], True), X),
    "Sum along no axis": ("ReduceSum", reduction(RAW.Sum, tf.zeros([0], tf.int32)), X),
    "Mean": ("ReduceMean", reduction(RAW.Mean, [1, 2]), X),
    "Prod": ("ReduceProd", reduction(RAW.Prod, 1), X),
    "Max": ("ReduceMax", reduction(RAW.Max, 0), X),
    "Min": ("ReduceMin", reduction(RAW.Min, [0, 1, 2, 3]), X),
    "EuclideanNorm": ("ReduceL2", reduction(RAW.EuclideanNorm, [1]), X),
    "ArgMax": ("ArgMax", lambda x: RAW.ArgMax(input=x, dimension=1), X),
    "ArgMin": ("ArgMin", lambda x: RAW.ArgMin(input=x, dimension=-1), X),
    "Cumsum": ("CumSum", lambda x: RAW.Cumsum(x=x, axis=-1, exclusive=True, reverse=True), X),
    "TopKV2": ("TopK", lambda x: RAW.TopKV2(input=x, k=3)[0], X),
    # shapes
    "Reshape": ("Reshape", lambda x: tf.reshape(x, [2, -1]), X),
    "Squeeze": ("Squeeze", lambda x: tf.squeeze(x), numbers(1, 3, 1)),
    "Squeeze an axis": ("Squeeze", lambda x: tf.squeeze(x, -1), numbers(1, 3, 1)),
    "ExpandDims": ("Unsqueeze", lambda x: tf.expand_dims(x, -1), X),
    "BroadcastTo": ("Expand", lambda x: tf.broadcast_to(x, [2, 3, 4]), numbers(3, 1)),
    "Tile": ("Tile", lambda x: tf.tile(x, [2, 3]), M),
    "Transpose": ("Transpose", lambda x: tf.transpose(x, [0, 3, 1, 2]), X),
    # parts
    "ConcatV2": ("Concat", lambda x: tf.concat([x, x, x], -2), X),
    "Split": ("Split", lambda x: tf.split(x, 2, -1), X),
    "SplitV": ("Split", lambda x: tf.split(x, [1, -1], 1), X),
    "Slice": ("Slice", lambda x: tf.slice(x, [0, 1, 2, 0], [2, 3, -1, 1]), X),
    "StridedSlice": ("Slice", stepped, X),
    "StridedSlice of one element": ("Gather", lambda x: x[:, -1], X),
    "Pad": ("Pad", lambda x: tf.pad(x, [[0, 1], [2, 0]]), M),
    "PadV2": ("Pad", lambda x: tf.pad(x, [[0, 1], [2, 0]], constant_values=1.5), M),
    "MirrorPad": ("Pad", lambda x: tf.pad(x, [[0, 1], [2, 0]], "REFLECT"), M),
    # filled
    "ZerosLike": ("Expand", lambda x: RAW.ZerosLike(x=x), M),
    "OnesLike": ("Expand", lambda x: RAW.OnesLike(x=x), INTEGERS),
    # indices, data types, copies
    "OneHot": ("OneHot", lambda x: tf.one_hot(x, 5, 2.0, -1.0), np.array([[0, 3], [1, 4]])),
    "Cast": ("Cast", lambda x: tf.cast(x, tf.float64), M),
    "Identity": ("Identity", lambda x: tf.identity(x), M),
}


def test_bicubic_resizing():
    """TensorFlow's kernel is a table of 1024 values."""
    seen = look("Resize", resize(RAW.ResizeBicubic, centers=True), X)
    (expected,) = reference("Resize", seen.roles, seen.inputs, seen.attrs)
    np.testing.assert_allclose(seen.outputs[0], expected, atol=5e-3)


@pytest.mark.parametrize(("type", "call", "argument"), CALLS.values(), ids=CALLS)
def test_it_computes_what_onnx_says(type, call, argument):
    seen = look(type, call, argument)
    found = reference(type, seen.roles, seen.inputs, seen.attrs, len(seen.outputs))
    for expected, given in zip(found, seen.outputs, strict=True):
        np.testing.assert_allclose(given, expected, rtol=2e-5, atol=2e-5)
        assert given.shape == np.shape(expected)
