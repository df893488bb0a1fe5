"""Forward code that runs in the backward pass: operators like all others (S3)."""

import functools

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Count, Insert, after, before, host_and_pure
from straight_through import assert_close
from tensorflow.compat import v1

RNG = np.random.default_rng(0)
W = RNG.normal(size=(4, 4)).astype(np.float32)
B = RNG.normal(size=4).astype(np.float32)
X = RNG.normal(size=(3, 4)).astype(np.float32)


def mask(w):
    return w * tf.cast(tf.abs(w) > 0.5, w.dtype)


def masking(pure):
    return (before("MatMul", mask, inputs=[1], pure=pure),)


def layers(wrap, weight, bias):
    """Two layers, each of which keeps only its input for its backward if ``wrap`` has it so."""

    def layer(x):
        return tf.nn.relu(tf.matmul(x, weight) + bias)

    return lambda x: wrap(layer)(wrap(layer)(x))


def tape_inside(wrap):
    weight, bias = tf.Variable(W), tf.Variable(B)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layers(wrap, weight, bias)(x) ** 2)
        return tape.gradient(loss, [x, weight, bias])

    return step(tf.constant(X))


def tape_around(wrap):
    weight, bias, x = tf.Variable(W), tf.Variable(B), tf.constant(X)
    function = tf.function(layers(wrap, weight, bias))
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(function(x) ** 2)
    return tape.gradient(loss, [x, weight, bias])


def session(wrap):
    with tf.Graph().as_default(), v1.Session() as session:
        weight = v1.get_variable("w", initializer=W, use_resource=True)
        bias = v1.get_variable("b", initializer=B, use_resource=True)
        x = v1.placeholder(tf.float32, [3, 4])
        loss = tf.reduce_sum(layers(wrap, weight, bias)(x) ** 2)
        gradients = tf.gradients(loss, [x, weight, bias])
        session.run(v1.global_variables_initializer())
        return session.run(gradients, {x: X})


each_way = pytest.mark.parametrize(
    "gradients", [tape_inside, tape_around, session], ids=lambda f: f.__name__
)


def as_arrays(gradients):
    return [np.asarray(tf.convert_to_tensor(gradient)) for gradient in gradients]


def changing(pure):
    """An output and a gradient."""
    return (
        after("Relu", lambda y: 2.0 * y + 1.0, pure=pure),
        Insert("insert_on_grad_inputs", "MatMul", lambda g: 3.0 * g, inputs=[1], pure=pure),
    )


@functools.cache
def where_nothing_is_recomputed(make=None):
    """The gradients under the tools that are made."""
    with amanda.apply(*(make(pure=True) if make else ())):
        return as_arrays(tape_inside(lambda layer: layer))


@each_way
@host_and_pure
@pytest.mark.parametrize("make", [masking, changing], ids=["a weight", "an output, a gradient"])
def test_what_is_changed_is_changed_in_what_is_recomputed(gradients, pure, make):
    with amanda.apply(*make(pure)):
        actual = as_arrays(gradients(tf.recompute_grad))
    assert_close(actual, where_nothing_is_recomputed(make))
    assert not np.allclose(actual[0], where_nothing_is_recomputed()[0])


@each_way
def test_what_is_computed_again_is_counted_again(gradients):
    count = Count(["MatMul", "Relu"])
    with amanda.apply(count):
        gradients(tf.recompute_grad)
    kinds = [id.partition("#")[0] for id in count.counts if count.counts[id]]
    assert sorted(kinds) == sorted(2 * ["MatMul", "MatMul/recomputed", "Relu", "Relu/recomputed"])


@each_way
def test_the_rest_of_a_custom_gradient_is_left_alone(gradients):
    """Of tf.recompute_grad's own operators none is one of the model's."""
    count = Count()
    with amanda.apply(count):
        gradients(tf.recompute_grad)
    recomputed = [id.partition("/")[0] for id in count.counts if "/recomputed" in id]
    assert sorted(recomputed) == ["AddV2", "AddV2", "MatMul", "MatMul", "Relu", "Relu"]


def test_a_branch_that_is_recomputed_for_a_tape_around_the_function():
    """It is traced while gradients are built, so that its names are those of gradients."""
    block = tf.recompute_grad(
        lambda x: tf.cond(tf.reduce_sum(x) < 1e9, lambda: tf.tanh(x), lambda: x)
    )
    function, x = tf.function(block), tf.constant(X)
    count = Count("Tanh")
    with amanda.apply(count, before("Tanh", lambda x: x * 2, pure=True)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        gradient = tape.gradient(y, x)
    np.testing.assert_allclose(gradient, 1 - np.tanh(2 * X) ** 2, rtol=1e-4, atol=1e-6)
    assert list(count.counts.values()) == [1, 1]
