"""Gradients in branches see what an operator was given for a tensor from outside of the branch."""

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import before

X = np.float32([2, -3])
# What cube gives where both factors of both products are doubled, and its gradient: the second
# product passes 2 * x to the first one, of which each factor gets that times 2 * x.
CUBE = 16 * X**3
SLOPE = 2 * (2 * X) ** 2 + 8 * X**2


def cube(x):
    return x * x * x


def doubled(**options):
    return before("Mul", lambda a, b: (a * 2, b * 2), **options)


def branch(x):
    return tf.cond(tf.reduce_sum(x) < 0, lambda: cube(x), lambda: x)


def both_branches(x):
    copy = tf.identity(x)
    return tf.cond(tf.reduce_sum(x) < 0, lambda: cube(copy), lambda: cube(x))


def switch(x):
    return tf.switch_case(tf.constant(1), [lambda: x, lambda: cube(x), lambda: x + cube(x)])


def nested(x):
    return tf.cond(tf.reduce_sum(x) < 0, lambda: branch(x), lambda: x)


def in_a_loop(x):
    y = tf.zeros_like(x)
    for turn in tf.range(3):
        if turn == 1:
            y = y + cube(x)
    return y


def around_a_loop(x):
    def turns():
        return tf.while_loop(lambda i, y: i < 1, lambda i, y: (i + 1, y + cube(x)), (0, 0 * x))[1]

    return tf.cond(tf.reduce_sum(x) < 0, turns, lambda: x)


def tape_inside(program, **options):
    @tf.function(**options)
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = program(x)
        return y, tape.gradient(y, x)

    return run


def assert_right(y, gradient):
    np.testing.assert_allclose(y, CUBE)
    np.testing.assert_allclose(gradient, SLOPE)


@pytest.mark.parametrize(
    "program", [both_branches, switch, nested, in_a_loop, around_a_loop], ids=lambda p: p.__name__
)
def test_a_tape_inside_the_function(program):
    run = tape_inside(program)
    with amanda.apply(doubled(pure=True)):
        assert_right(*run(tf.constant(X)))


def test_what_another_branch_hands_on_is_no_version_of_the_result():
    run = tape_inside(lambda x: tf.cond(x[0] > 0, lambda: tf.tanh(x), lambda: x))
    with amanda.apply(before("Tanh", lambda x: x * 2, pure=True)):
        y, gradient = run(tf.constant(X))
    np.testing.assert_allclose(y, np.tanh(2 * X), rtol=1e-5)
    np.testing.assert_allclose(gradient, 1 - np.tanh(2 * X) ** 2, rtol=1e-3)


def test_a_tape_around_the_function():
    function = tf.function(both_branches)
    with amanda.apply(doubled()), tf.GradientTape() as tape:
        x = tf.Variable(X)
        y = function(tf.convert_to_tensor(x))
    assert_right(y, tape.gradient(y, x))


def test_compiled_by_xla():
    run = tape_inside(nested, jit_compile=True)
    with amanda.apply(doubled(pure=True)):
        assert_right(*run(tf.constant(X)))


@pytest.mark.parametrize("version", [1, 2])
def test_in_a_session(version):
    if version == 1:
        tf.compat.v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            x = tf.compat.v1.placeholder(tf.float32, X.shape)
            y = branch(x)
            (gradient,) = tf.gradients(y, x)
            with amanda.apply(doubled()):
                assert_right(*session.run([y, gradient], {x: X}))
    finally:
        tf.compat.v1.enable_control_flow_v2()
