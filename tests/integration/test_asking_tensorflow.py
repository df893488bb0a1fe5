"""Portable tools that need the forward side, held to plain references in TensorFlow and Keras."""

import amanda
import keras
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import host_and_pure
from asking_tools import PHI, Around, ChannelGate, ClippedBinary, Doubling, LearnedStep, W, X

X_LAST, W_LAST = X.transpose(0, 2, 3, 1), W.transpose(2, 3, 1, 0)


def gradients(weight, gate=None, in_step=True):
    """Of a loss of a convolution, whose output may be scaled: the output, for x and for w."""
    x, w = tf.constant(X_LAST), tf.Variable(W_LAST)

    @tf.function
    def forward(x):
        y = tf.nn.conv2d(x, weight(w), 1, "VALID")
        return y if gate is None else y * gate(x)

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = forward(x)
            loss = tf.reduce_sum(y**2)
        return y, *tape.gradient(loss, [x, w])

    return [t.numpy() for t in (tf.function(step) if in_step else step)(x)]


def under(tool, in_step):
    with amanda.apply(tool):
        return gradients(lambda w: w, in_step=in_step)


def assert_close(found, plain):
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


IN_STEP = pytest.mark.parametrize("in_step", [False, True], ids=["tape", "step"])


@host_and_pure
@IN_STEP
def test_a_clipped_straight_through_estimator(pure, in_step):
    def binary(w):
        passed = tf.clip_by_value(w, -1, 1)
        return passed + tf.stop_gradient(tf.sign(w) - passed)

    assert_close(under(ClippedBinary(pure), in_step), gradients(binary))


@IN_STEP
def test_the_step_size_of_lsq_has_its_gradient(in_step):
    step = tf.Variable(0.4)

    def quantized(w):
        clipped = tf.clip_by_value(w / step, -4, 3)
        return (clipped + tf.stop_gradient(tf.round(clipped) - clipped)) * step

    plain = gradients(quantized)
    with tf.GradientTape() as tape:
        y = tf.nn.conv2d(X_LAST, quantized(tf.constant(W_LAST)), 1, "VALID")
        loss = tf.reduce_sum(y**2)
    tool = LearnedStep(0.4, bits=3)
    assert_close(under(tool, in_step), plain)
    assert tool.gradients == [pytest.approx(float(tape.gradient(loss, step)), rel=1e-4)]


@host_and_pure
@IN_STEP
def test_the_channel_gate_of_fbs(pure, in_step):
    def gate(x):
        saliency = tf.stop_gradient(tf.reduce_mean(tf.abs(x), (1, 2)) @ PHI)
        kept = saliency * 2 > tf.reduce_max(saliency, 1, keepdims=True)
        return tf.where(kept, saliency, 0)[:, None, None, :]

    assert_close(under(ChannelGate(PHI, pure), in_step), gradients(lambda w: w, gate))


@host_and_pure
def test_a_replacement_runs_the_operator_in_its_layout(pure):
    function = tf.function(lambda x, w: tf.nn.conv2d(x, w, 1, "VALID"))
    with amanda.apply(Doubling(pure)):
        found = function(X_LAST, W_LAST)
    assert_close([found], [function(X_LAST, W_LAST * 2) + 1])


@host_and_pure
@IN_STEP
@pytest.mark.parametrize("type", ["LayerNormalization", "Gelu"])
def test_an_operator_of_several_nodes(type, pure, in_step):
    layers = {
        "LayerNormalization": keras.layers.LayerNormalization(),
        "Gelu": keras.layers.Activation("gelu"),
    }
    layer = layers[type]
    plain = layer(X_LAST).numpy()
    function = tf.function(lambda x: layer(x) * 1.0)

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
            loss = tf.reduce_sum(y**2)
        return y, tape.gradient(loss, x)

    with amanda.apply(Around(type, pure)):
        found = (tf.function(step) if in_step else step)(tf.constant(X_LAST))
    assert_close(found, [plain * 2 + X_LAST, X_LAST + plain])


@host_and_pure
def test_keras_trains_with_a_clipped_estimator(pure):
    def trained(tool=None):
        kernel = keras.initializers.Constant(W_LAST)
        layer = keras.layers.Conv2D(4, 3, use_bias=False, kernel_initializer=kernel)
        model = keras.Sequential([keras.Input((5, 5, 3)), layer, keras.layers.Flatten()])
        model.compile(keras.optimizers.SGD(1e-3), "mse")
        with amanda.apply(*([] if tool is None else [tool])):
            for _ in range(3):
                model.train_on_batch(X_LAST, np.ones((2, 36), np.float32))
        return layer.kernel.numpy()

    w = tf.Variable(W_LAST)
    for _ in range(3):
        with tf.GradientTape() as tape:
            passed = tf.clip_by_value(w, -1, 1)
            binary = passed + tf.stop_gradient(tf.sign(w) - passed)
            y = tf.nn.conv2d(X_LAST, binary, 1, "VALID")
            loss = tf.reduce_mean((tf.reshape(y, [2, 36]) - 1) ** 2)
        w.assign_sub(1e-3 * tape.gradient(loss, w))
    np.testing.assert_allclose(trained(ClippedBinary(pure)), w.numpy(), rtol=1e-4, atol=1e-5)
    assert not np.allclose(trained(), w.numpy(), atol=1e-5)
