"""TensorFlow's operators over types of data and settings, each computed again by ONNX.

Settings (axes, permutations, sizes) are given as constants and as what is known only when the graph
runs: what is seen under an ONNX name is what ONNX says in both, the rest keeps its own name.
"""

import itertools

import amanda
import numpy as np
import pytest
import tensorflow as tf
from onnx_check import Look, difference

raw = tf.raw_ops
DTYPES = ("float32", "float64", "float16", "int32", "int64", "uint8", "int8", "bool", "complex64")
RNG = np.random.default_rng(0)


def values(*shape, dtype="float32"):
    if dtype == "bool":
        return RNG.normal(size=shape) > 0
    scale = 3 if "int" in dtype else 1
    drawn = RNG.normal(size=shape) * scale
    return (np.abs(drawn) if dtype.startswith("u") else drawn).astype(dtype)


def seen(call, *arguments):
    """The operators of a call in a graph whose ``arguments`` are known only when it runs."""
    look = Look()
    function = tf.function(lambda *given: call(*given))
    with amanda.apply(look):
        function(*(tf.constant(argument) for argument in arguments))
    return look.seen


def held(call, *arguments):
    """Run a call and hold all that is seen of it to ONNX, if TensorFlow can run it at all."""
    try:
        plain = tf.function(lambda *given: call(*given))
        plain(*(tf.constant(argument) for argument in arguments))
    except (tf.errors.OpError, TypeError, ValueError):
        pytest.skip("TensorFlow has no kernel for it")
    found = seen(call, *arguments)
    assert found
    wrong = {str(operator): why for operator in found if (why := difference(operator))}
    assert not wrong, wrong


UNARY = [
    "Abs",
    "Neg",
    "Reciprocal",
    "Inv",
    "Sqrt",
    "Exp",
    "Log",
    "Erf",
    "Sign",
    "Floor",
    "Ceil",
    "Round",
    "Rint",
    "Sin",
    "Cos",
    "Tan",
    "Asin",
    "Acos",
    "Atan",
    "Sinh",
    "Cosh",
    "Asinh",
    "Acosh",
    "Atanh",
    "LogicalNot",
    "Invert",
    "IsNan",
    "IsInf",
    "Sigmoid",
    "Tanh",
]
FEATURES = [
    "Relu",
    "Relu6",
    "LeakyRelu",
    "Elu",
    "Selu",
    "Softplus",
    "Softsign",
]
BINARY = [
    "Add",
    "AddV2",
    "Sub",
    "Mul",
    "Div",
    "RealDiv",
    "TruncateDiv",
    "FloorDiv",
    "FloorMod",
    "Mod",
    "TruncateMod",
    "Pow",
    "Maximum",
    "Minimum",
    "Equal",
    "NotEqual",
    "Less",
    "LessEqual",
    "Greater",
    "GreaterEqual",
    "LogicalAnd",
    "LogicalOr",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "LeftShift",
    "RightShift",
]
REDUCTIONS = [
    "Sum",
    "Mean",
    "Prod",
    "Max",
    "Min",
    "EuclideanNorm",
    "Any",
    "All",
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    held(lambda x: getattr(raw, name)(x=x), values(3, 4, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FEATURES)
def test_activations(name, dtype):
    held(lambda x: getattr(raw, name)(features=x), values(3, 4, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtype):
    x, y = values(3, 4, dtype=dtype), values(3, 4, dtype=dtype)
    if dtype != "bool":
        y = np.abs(y) + np.array(1, dtype)
    held(lambda x, y: getattr(raw, name)(x=x, y=y), x, y)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
@pytest.mark.parametrize("axes", [[0], [-1], [0, 1], []])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, known, axes, dtype):
    x, axes = values(3, 4, dtype=dtype), np.array(axes, np.int32)
    reduce = getattr(raw, name)
    if known:
        held(lambda x: reduce(input=x, axis=tf.constant(axes), keep_dims=True), x)
    else:
        held(lambda x, axes: reduce(input=x, axis=axes), x, axes)


X = values(2, 3, 4)
SETTINGS = {  # a call and its setting
    "transpose": (lambda x, s: raw.Transpose(x=x, perm=s), [2, 0, 1]),
    "reshape": (lambda x, s: raw.Reshape(tensor=x, shape=s), [6, -1]),
    "expand_dims": (lambda x, s: raw.ExpandDims(input=x, axis=s), -1),
    "concat": (lambda x, s: raw.ConcatV2(values=[x, x], axis=s), -2),
    "split": (lambda x, s: raw.Split(axis=s, value=x, num_split=3), 1),
    "split by sizes": (
        lambda x, s: raw.SplitV(value=x, size_splits=s, axis=2, num_split=2),
        [1, 3],
    ),
    "slice": (lambda x, s: raw.Slice(input=x, begin=s, size=[1, -1, 2]), [1, 0, 1]),
    "strided slice": (
        lambda x, s: raw.StridedSlice(input=x, begin=s, end=[2, 3], strides=[1, 2]),
        [0, 1],
    ),
    "one element": (
        lambda x, s: raw.StridedSlice(
            input=x,
            begin=s,
            end=[0, 2],
            strides=[1, 1],
            begin_mask=1,
            end_mask=1,
            shrink_axis_mask=2,
        ),
        [0, 1],
    ),
    "pad": (lambda x, s: raw.Pad(input=x, paddings=s), [[0, 1], [1, 0], [2, 2]]),
    "pad with": (
        lambda x, s: raw.PadV2(input=x, paddings=s, constant_values=7.0),
        [[0, 1], [1, 0], [2, 2]],
    ),
    "mirror pad": (
        lambda x, s: raw.MirrorPad(input=x, paddings=s, mode="REFLECT"),
        [[0, 1], [1, 0], [2, 2]],
    ),
    "tile": (lambda x, s: raw.Tile(input=x, multiples=s), [1, 2, 3]),
    "broadcast": (lambda x, s: raw.BroadcastTo(input=x, shape=s), [5, 2, 3, 4]),
    "gather": (lambda x, s: raw.GatherV2(params=x, indices=[0, 1], axis=s), -1),
    "gather nd": (lambda x, s: raw.GatherNd(params=x, indices=s), [[0, 1], [1, 2]]),
    "argmax": (lambda x, s: raw.ArgMax(input=x, dimension=s), 1),
    "argmin": (lambda x, s: raw.ArgMin(input=x, dimension=s), -1),
    "cumsum": (lambda x, s: raw.Cumsum(x=x, axis=s, exclusive=True), 1),
    "cumprod": (lambda x, s: raw.Cumprod(x=x, axis=s, reverse=True), -1),
    "top k": (lambda x, s: raw.TopKV2(input=x, k=s), 2),
    "clip": (lambda x, s: raw.ClipByValue(t=x, clip_value_min=s, clip_value_max=0.5), -0.5),
    "clip to nothing": (
        lambda x, s: raw.ClipByValue(t=x, clip_value_min=s, clip_value_max=0.5),
        1.0,
    ),
    "one hot": (
        lambda x, s: raw.OneHot(indices=tf.argmax(x, 1), depth=s, on_value=2.0, off_value=-1.0),
        5,
    ),
    "range": (lambda x, s: raw.Range(start=0.0, limit=s, delta=0.5), 3.0),
    "fill": (lambda x, s: raw.Fill(dims=s, value=x[0, 0, 0]), [2, 3]),
    "band": (lambda x, s: raw.MatrixBandPart(input=x, num_lower=s, num_upper=-1), 1),
    "band below": (lambda x, s: raw.MatrixBandPart(input=x, num_lower=-1, num_upper=s), 0),
    "resize": (
        lambda x, s: raw.ResizeBilinear(images=x[..., None], size=s, half_pixel_centers=True),
        [5, 3],
    ),
    "resize to nearest": (
        lambda x, s: raw.ResizeNearestNeighbor(images=x[..., None], size=s, align_corners=False),
        [6, 8],
    ),
    "reverse": (
        lambda x, s: raw.ReverseSequence(input=x, seq_lengths=s, seq_dim=1, batch_dim=0),
        [2, 3],
    ),
    "scatter": (
        lambda x, s: raw.TensorScatterAdd(tensor=x, indices=s, updates=[1.0, 2.0]),
        [[0, 1, 1], [1, 0, 2]],
    ),
    "softmax along an axis": (lambda x, s: tf.nn.softmax(x, axis=1), 0),
    "squeeze": (lambda x, s: raw.Squeeze(input=x[:1], axis=[0]), 0),
    "where": (lambda x, s: raw.Where(condition=x > 0), 0),
    "unique": (lambda x, s: raw.Unique(x=tf.reshape(tf.round(x), [-1])), 0),
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name, known):
    call, setting = SETTINGS[name]
    setting = np.array(setting, None if isinstance(setting, float) else np.int32)
    setting = setting.astype(np.float32) if setting.dtype.kind == "f" else setting
    if known:
        held(lambda x: call(x, tf.constant(setting)), X)
    else:
        held(call, X, setting)


IMAGE = values(2, 8, 9, 4)
WINDOWS = list(itertools.product(["SAME", "VALID"], [1, 2, 3]))


@pytest.mark.parametrize(("padding", "stride"), WINDOWS)
@pytest.mark.parametrize("known", [True, False])
def test_windows(known, padding, stride):
    signature = [tf.TensorSpec(IMAGE.shape if known else [None, None, None, 4], tf.float32)]
    kernel, strides = values(3, 2, 4, 5), [1, stride, stride, 1]
    depthwise, grouped = values(3, 2, 4, 2), values(3, 2, 2, 6)

    @tf.function(input_signature=signature)
    def call(x):
        window = {"ksize": [1, 3, 2, 1], "strides": strides, "padding": padding}
        return (
            raw.Conv2D(input=x, filter=kernel, strides=strides, padding=padding),
            raw.Conv2D(input=x, filter=grouped, strides=strides, padding=padding),
            raw.DepthwiseConv2dNative(input=x, filter=depthwise, strides=strides, padding=padding),
            raw.MaxPool(input=x, **window),
            raw.AvgPool(value=x, **window),
            raw.MaxPoolWithArgmax(input=x, **window),
            raw.LRN(input=x),
            raw.SpaceToDepth(input=x[:, :8, :8], block_size=2),
        )

    look = Look()
    with amanda.apply(look):
        call(tf.constant(IMAGE))
    assert {operator.type for operator in look.seen} >= {"Conv", "MaxPool", "AveragePool"}
    wrong = {str(operator): why for operator in look.seen if (why := difference(operator))}
    assert not wrong, wrong


BACK = {  # over one axis, two and three: what is given, the kernel, and a function of size and x
    1: (values(2, 5, 4), values(3, 6, 4), tf.nn.conv1d_transpose),
    2: (values(2, 5, 6, 4), values(3, 2, 6, 4), tf.nn.conv2d_transpose),
    3: (values(2, 5, 4, 3, 4), values(3, 2, 2, 6, 4), tf.nn.conv3d_transpose),
}


@pytest.mark.parametrize("size", ["known", "of an unknown batch", "unknown"])
@pytest.mark.parametrize(("padding", "stride"), WINDOWS)
@pytest.mark.parametrize("rank", BACK)
def test_transposed_convolutions(rank, padding, stride, size):
    x, kernel, convolve = BACK[rank]
    shape = x.shape[1:-1]
    smallest = [  # the last ones of all that fit
        n * stride - (stride - 1) if padding == "SAME" else (n - 1) * stride + k + stride - 1
        for n, k in zip(shape, kernel.shape, strict=False)
    ]
    known = {"known": x.shape, "of an unknown batch": [None, *x.shape[1:]]}
    given = known.get(size, [*[None] * (rank + 1), 4])

    @tf.function(input_signature=[tf.TensorSpec(given, tf.float32), tf.TensorSpec([rank])])
    def call(x, sizes):
        space = tf.cast(sizes, tf.int32) if size == "unknown" else smallest
        batch = x.shape[0] or tf.shape(x)[0]
        whole = tf.concat([[batch], space, [6]], 0)
        return convolve(x, kernel, whole, stride, padding)

    look = Look()
    with amanda.apply(look):
        call(tf.constant(x), tf.constant(smallest, tf.float32))
    wrong = {str(operator): why for operator in look.seen if (why := difference(operator))}
    assert not wrong, wrong
    told = size != "unknown" or stride == 1
    (shown,) = [o for o in look.seen if o.type == "ConvTranspose" or "Backprop" in o.type]
    assert (shown.type == "ConvTranspose") is told
    if told:
        assert len(shown.attrs["strides"]) == rank
