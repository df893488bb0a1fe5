"""What graphs compute and learn under tools that quantize, held to TensorFlow's own functions."""

import amanda
import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from amanda_tools.quantization import Quantize, QuantizeAware

fake = tf.quantization
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((5, 6)).astype(np.float32)
MATRIX = RANDOM.standard_normal((6, 4)).astype(np.float32)
# Whatever order products of these are summed up in, no bit of a gradient is rounded.
INTEGERS = {shape: RANDOM.integers(-9, 9, shape).astype(np.float32) for shape in ((5, 6), (6, 4))}
UPSTREAM = RANDOM.integers(-9, 9, (5, 4)).astype(np.float32)


class Given(amanda.Tool):
    """What products are given, after the tools before it."""

    def __init__(self):
        super().__init__(namespace="onnx")
        self.found = {}
        self.add_inst_for_op(self.analyze, ops=["MatMul", "Gemm", "Conv"])

    def analyze(self, ctx):
        ctx.insert_before_op(self.note, names=ctx.input_names)

    def note(self, *tensors, names) -> None:
        self.found |= {name: t.numpy() for name, t in zip(names, tensors, strict=True)}


def step_of(x, weight):
    """A function that gives a product, and gradients of a weighted sum of it."""

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.matmul(x * 1, weight)
            loss = tf.reduce_sum(y * UPSTREAM)
        return y, *tape.gradient(loss, [x, weight])

    return step


def trained(tool, x, weight, executions=1):
    """What a product is given, and the gradients of both operands."""
    given, step = Given(), step_of(x, tf.Variable(weight))
    with amanda.apply(tool, given):
        for _ in range(executions):
            _, *gradients = step(tf.constant(x))
    return given.found, dict(zip("AB", (g.numpy() for g in gradients), strict=True))


def rounded(f, t, upstream):
    """What a function rounds a tensor to, and the gradient of that."""
    t = tf.constant(t)
    with tf.GradientTape() as tape:
        tape.watch(t)
        y = f(t)
        loss = tf.reduce_sum(y * upstream)
    return y.numpy(), tape.gradient(loss, t).numpy()


def ends(t, axis=None):
    return np.minimum(t.min(axis), 0), np.maximum(t.max(axis), 0)


@pytest.mark.parametrize(("bits", "narrow"), [(4, False), (8, True)])
@pytest.mark.parametrize("kind", [Quantize, QuantizeAware])
def test_the_ranges_of_channels_are_those_of_tensorflow(bits, narrow, kind):
    low, high = ends(MATRIX, 0)
    options = {} if kind is Quantize else {"activation_bits": 0}
    tool = kind(bits, symmetric=False, narrow=narrow, arithmetic="tensorflow", **options)
    given, gradients = trained(tool, INTEGERS[5, 6], MATRIX)
    expected, slope = rounded(
        lambda t: fake.fake_quant_with_min_max_vars_per_channel(t, low, high, bits, narrow),
        *(MATRIX, INTEGERS[5, 6].T @ UPSTREAM),
    )
    np.testing.assert_array_equal(given["B"].T, expected)
    np.testing.assert_array_equal(gradients["B"], slope)
    (row,) = tool.rows()
    assert (row.low, row.high) == (int(narrow), 2**bits - 1)


CALIBRATED = Quantize(0, "percentile", arithmetic="tensorflow", percentile=60, calibrate=1)


@pytest.mark.parametrize(
    ("tool", "function"),
    [
        (CALIBRATED, fake.fake_quant_with_min_max_args),
        (QuantizeAware(0, arithmetic="tensorflow"), fake.fake_quant_with_min_max_vars),
    ],
    ids=["constant", "variable"],
)
def test_the_range_of_a_tensor_is_that_of_tensorflow(tool, function):
    given, gradients = trained(tool, ROWS, INTEGERS[6, 4], executions=2)
    (row,) = tool.rows()
    if tool is CALIBRATED:
        low, high, *_ = tool._known.popitem()[1].settings
        assert (gradients["A"] == 0).any()
    else:
        low, high = ends(ROWS)
    expected, slope = rounded(
        lambda t: function(t, float(low), float(high)),
        *(ROWS, UPSTREAM @ INTEGERS[6, 4].T),
    )
    np.testing.assert_array_equal(given["A"], expected)
    np.testing.assert_array_equal(gradients["A"], slope)
    assert row.minimum[0] <= 0 <= row.maximum[0]


@pytest.mark.parametrize("tool", [Quantize(), QuantizeAware(8, 0)], ids=["static", "training"])
def test_the_arithmetic_of_pytorch_is_the_same_to_the_bit(tool):
    scale = torch.tensor(MATRIX).abs().amax(0) / 127.5
    weight = torch.tensor(MATRIX, requires_grad=True)
    expected = torch.fake_quantize_per_channel_affine(weight, scale, scale * 0, 1, -128, 127)
    expected.backward(torch.tensor(INTEGERS[5, 6].T @ UPSTREAM))
    given, gradients = trained(tool, INTEGERS[5, 6], MATRIX)
    np.testing.assert_array_equal(given["B"].T, expected.detach().numpy())
    np.testing.assert_array_equal(gradients["B"], weight.grad.numpy())


def test_a_convolution():
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 6, 6, 3)).astype(np.float32)
    kernel = tf.Variable(random.standard_normal((3, 3, 3, 4)).astype(np.float32))
    low, high = ends(kernel.numpy(), (0, 1, 2))
    given = Given()
    with amanda.apply(Quantize(symmetric=False, arithmetic="tensorflow"), given):
        tf.function(lambda x: tf.nn.conv2d(x, kernel, 1, "VALID"))(x)
    expected = fake.fake_quant_with_min_max_vars_per_channel(kernel, low, high)
    np.testing.assert_array_equal(given.found["W"].transpose(2, 3, 1, 0), expected)


def test_the_ends_of_a_range_are_learned():
    tool = QuantizeAware(
        *(4, 0, "learned"), symmetric=False, arithmetic="tensorflow", learning_rate=0.01
    )
    low, high = (tf.Variable(end) for end in ends(MATRIX, 0))
    weight = tf.Variable(MATRIX)
    step = step_of(ROWS, weight)

    @tf.function
    def by_hand():
        with tf.GradientTape() as tape:
            y = ROWS @ fake.fake_quant_with_min_max_vars_per_channel(weight, low, high, 4)
            loss = tf.reduce_sum(y * UPSTREAM)
        return y, tape.gradient(loss, [weight, low, high])

    for _ in range(3):
        with amanda.apply(tool):
            y, _, slope = step(tf.constant(ROWS))
        expected, slopes = by_hand()
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(slope, slopes[0], rtol=1e-4, atol=1e-4)
        for variable, by in zip((weight, low, high), slopes, strict=True):
            variable.assign_sub(0.01 * by)
    (row,) = tool.rows()
    np.testing.assert_allclose(row.scale, (high - low) / 15, rtol=1e-4)


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_a_session(resource):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, (None, 6))
        matrix = tf.compat.v1.get_variable("m", initializer=MATRIX, use_resource=resource)
        y = tf.matmul(x, matrix)
        fetches = [y, *tf.gradients(tf.reduce_sum(y**2), [matrix])]
        session.run(tf.compat.v1.global_variables_initializer())
        tool, given = Quantize(4, "moving", symmetric=False, arithmetic="tensorflow"), Given()
        with amanda.apply(tool, given):
            session.run(fetches, {x: ROWS})
            assert np.array_equal(given.found["A"], ROWS)
            tool.freeze()
            session.run(fetches, {x: ROWS})
        learning = QuantizeAware(4, 4, "learned")
        with amanda.apply(learning):
            for _ in range(3):
                session.run(fetches, {x: ROWS})
    expected = fake.fake_quant_with_min_max_args(ROWS, *map(float, ends(ROWS)))
    np.testing.assert_array_equal(given.found["A"], expected)
    expected = fake.fake_quant_with_min_max_vars_per_channel(MATRIX, *ends(MATRIX, 0), 4)
    np.testing.assert_array_equal(given.found["B"].T, expected)
    assert [row.kind for row in learning.rows()] == ["activation", "weight"]
    assert learning.rows()[1].error is None  # since it was trained


def test_an_operator_in_a_loop_is_observed_in_each_turn():
    @tf.function
    def f(x):
        for _ in tf.range(3):
            x = tf.matmul(x, tf.eye(6) * 2)
        return x

    tool = Quantize(activations="minmax")
    with amanda.apply(tool):
        f(tf.constant(ROWS))
    tool.freeze()
    row = next(row for row in tool.rows() if row.input == "A")
    assert row.maximum[0] == pytest.approx(4 * ROWS.max(), rel=0.02)


@pytest.fixture
def model():
    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.LSTM(5, name="recurrent"),
        keras.layers.Dense(3, name="head"),
    ]
    model = keras.Sequential([keras.Input((4, 6)), *layers], name="net")
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


SEQUENCES = RANDOM.standard_normal((9, 4, 6)).astype(np.float32)
TARGETS = RANDOM.standard_normal((9, 3)).astype(np.float32)


def test_keras_trains_and_evaluates_by_the_same_ranges(model):
    tool = QuantizeAware(4, 4, "learned", learning_rate=0.001)
    with amanda.apply(tool):
        losses = model.fit(SEQUENCES, TARGETS, epochs=4, batch_size=4, verbose=0).history["loss"]
        tool.freeze()
        rows = tool.rows()
        found = [model.evaluate(SEQUENCES, TARGETS, batch_size=4, verbose=0) for _ in range(2)]
    assert losses[-1] < losses[0]
    assert found[0] == found[1] != model.evaluate(SEQUENCES, TARGETS, verbose=0)
    assert [row.id for row in tool.rows()] == [row.id for row in rows]  # of both functions
    assert len(rows) == len({row.id for row in rows}) * 2 == 6  # also where a last batch is smaller
    assert [row.scale for row in tool.rows()][::2] == [row.scale for row in rows][::2]


def test_what_was_calibrated_by_one_function_is_quantized_in_another(model):
    tool = Quantize(8, "minmax")
    with amanda.apply(tool):
        plain = model.predict(SEQUENCES, batch_size=4, verbose=0)
        tool.freeze()
        found = model.evaluate(SEQUENCES, plain, batch_size=4, verbose=0)
    assert 0 < found < 1e-3 * (plain**2).mean()
    assert {row.scope.split("/")[1] for row in tool.rows()} == {"recurrent", "head"}


def test_what_multiplies_as_one_is_refused_and_an_einsum_is_not():
    x, state, weight = tf.ones((2, 3)), tf.zeros((2, 4)), tf.ones((7, 16))
    gates = dict.fromkeys(("wci", "wcf", "wco"), tf.zeros(4))

    @tf.function
    def cell():
        return tf.raw_ops.LSTMBlockCell(
            x=x, cs_prev=state, h_prev=state, w=weight, b=tf.zeros(16), **gates
        )

    with amanda.apply(Quantize()), pytest.raises(amanda.UnsupportedError, match="layers of Keras"):
        cell()
    tool = Quantize(0, "dynamic")
    with amanda.apply(tool):
        tf.function(lambda x: tf.einsum("ab,ab->a", x, x + 1))(x)
    assert [row.input for row in tool.rows()] == ["Inputs[0]", "Inputs[1]"]


def test_a_table_that_is_looked_up_by_its_variable_is_refused_by_name():
    table = tf.Variable(tf.ones([8, 4]))
    lookup = tf.function(lambda ids: tf.nn.embedding_lookup(table, ids))
    with (
        amanda.apply(Quantize(ops=["Gather"])),
        pytest.raises(amanda.UnsupportedError, match=r"write tf.gather\(tf.convert_to_tensor"),
    ):
        lookup(tf.constant([1, 2]))


def test_a_model_that_multiplies_integers_already_is_said_to_be_left_alone():
    weight = tf.Variable(np.ones((3, 2), np.int8))
    product = tf.function(lambda x: tf.matmul(x, weight, output_type=tf.int32))
    tool = Quantize(activations="dynamic")
    with (
        pytest.warns(amanda.AmandaWarning, match="Quantize leaves alone .*quantized before"),
        amanda.apply(tool),
    ):
        product(tf.eye(3, dtype=tf.int8))
    assert not tool.rows()
