"""Tangents of a ForwardAccumulator are those of what tools make of operators, or it is refused."""

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import after, before, recorded, replace, under

X = np.float32([[0.3, -0.2], [0.1, 0.4]])
RIGHT = np.float32([[1.0, -2.0], [0.5, 3.0]])


def doubled(x):
    return x * 2


def tangents_of(model):
    @tf.function
    def run(x):
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
            y = model(x)
        return y, accumulator.jvp(y)

    return lambda: run(tf.constant(X))


def branched(x):
    return tf.cond(tf.size(x) > 1, lambda: tf.sin(x), lambda: x)


REFUSED = [
    (before("Sin", doubled, inputs=[0], pure=True), branched),
    (before("Sin", doubled, inputs=[0], pure=True), lambda x: tf.sin(x) * 3),
    (after("Tanh", doubled, pure=True), lambda x: tf.tanh(x) * 3),
    (replace("Exp", lambda x: x + 1), lambda x: tf.exp(x) * 3),
    (before("MatMul", doubled, inputs=[1], pure=True), lambda x: tf.matmul(x, RIGHT)),
]


@pytest.mark.parametrize(
    ("tool", "model"), REFUSED, ids=["branch", "before", "after", "replace", "matmul"]
)
def test_what_tangents_are_computed_of_cannot_be_changed(tool, model):
    with pytest.raises(amanda.UnsupportedError, match=r"ForwardAccumulator.*GradientTape"):
        under(tool, tangents_of(model))


def test_what_tangents_of_many_elements_are_computed_of_cannot_be_changed():
    @tf.function
    def run(x):
        def of_one(x):
            with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
                y = tf.sin(x)
            return accumulator.jvp(y), y

        return tf.vectorized_map(of_one, x)

    with pytest.raises(amanda.UnsupportedError, match="ForwardAccumulator"):
        under(before("Sin", doubled, inputs=[0], pure=True), lambda: run(tf.constant(X)))


def test_a_routine_on_the_host_may_look_and_not_change():
    run = tangents_of(lambda x: tf.sin(x))
    assert recorded(run, "Sin") == ["Sin"]
    with pytest.raises(amanda.RoutineError, match="ForwardAccumulator"):
        under(before("Sin", doubled, inputs=[0]), run)


def test_what_tangents_do_not_read_may_be_changed():
    y, tangents = under(
        before("Tanh", doubled, inputs=[0], pure=True), tangents_of(lambda x: tf.tanh(x))
    )
    np.testing.assert_allclose(y, np.tanh(2 * X), rtol=1e-5)
    np.testing.assert_allclose(tangents, 1 - np.tanh(2 * X) ** 2, rtol=1e-5)


def test_an_accumulator_around_a_function_follows_a_change():
    function, x = tf.function(lambda x: tf.sin(x)), tf.constant(X)

    def run():
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
            y = function(x)
        return accumulator.jvp(y)

    tangents = under(before("Sin", doubled, inputs=[0], pure=True), run)
    np.testing.assert_allclose(tangents, np.cos(2 * X), rtol=1e-5)
