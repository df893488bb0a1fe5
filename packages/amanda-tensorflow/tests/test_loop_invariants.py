"""Gradients in loops see what an operator was given for a tensor that no turn changes."""

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.cases import case
from amanda.testing.probes import before

X, W = np.float32([2, -3]), np.float32([0.5, 4])


def power(x, w, turns):
    return tf.while_loop(
        lambda turn, y: turn < turns,
        lambda turn, y: (turn + 1, y * w),
        (tf.constant(0), x),
        maximum_iterations=5,  # without which TensorFlow cannot compile the gradient by XLA
    )[1]


def straight(x, w, turns):
    return power(x, w, 3)


def turns_known_when_it_runs(x, w, turns):
    return power(x, w, turns)


def autograph(x, w, turns):
    for _ in tf.range(3):
        x = x * w
    return x


def in_a_branch(x, w, turns):
    return tf.cond(turns > 2, lambda: power(x, w, turns), lambda: x)


def in_a_function(x, w, turns):
    return tf.function(power)(x, w, turns)


def in_a_loop(x, w, turns):
    return tf.while_loop(
        lambda turn, y: turn < 3, lambda turn, y: (turn + 1, power(y, w, 1)), (tf.constant(0), x)
    )[1]


def in_a_loop_in_a_branch(x, w, turns):
    return tf.cond(turns > 2, lambda: in_a_loop(x, w, turns), lambda: x)


def cast_before(x, w, turns):
    return power(x, tf.identity(w), turns)


PROGRAMS = [
    straight,
    turns_known_when_it_runs,
    autograph,
    in_a_branch,
    in_a_function,
    cast_before,
    in_a_loop,
    in_a_loop_in_a_branch,
]


def tape_around(program, **options):
    function = tf.function(program, **options)

    def run(x, w, turns):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = function(x, w, turns)
        return tape.gradient(y, [x, w])

    return run


def tape_inside(program, **options):
    @tf.function(**options)
    def run(x, w, turns):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = program(x, w, turns)
        return tape.gradient(y, [x, w])

    return run


@pytest.mark.parametrize("taped", [tape_around, tape_inside])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_substitute_of_a_host_and_of_a_pure_routine(program, taped):
    run = taped(program)
    arguments = tf.constant(X), tf.constant(W), tf.constant(3)
    plain = run(*arguments)
    for pure in (False, True):
        with case(pure):
            with amanda.apply(before("Mul", lambda w: w * 2, inputs=[1], pure=pure)):
                dx, dw = run(*arguments)
            np.testing.assert_allclose(dx, 8 * W**3)
            np.testing.assert_allclose(dw, 12 * X * W**2)
            for found, expected in zip(run(*arguments), plain, strict=True):
                np.testing.assert_array_equal(found, expected)


def test_a_substitute_in_what_is_compiled():
    run = tape_inside(straight, jit_compile=True)
    with amanda.apply(before("Mul", lambda w: w * 2, inputs=[1], pure=True)):
        dx, dw = run(tf.constant(X), tf.constant(W), tf.constant(3))
    np.testing.assert_allclose(dx, 8 * W**3)
    np.testing.assert_allclose(dw, 12 * X * W**2)


def test_a_substitute_in_a_compiled_loop_that_keeps_nothing_else():
    def sums(x, w, turns):
        return tf.while_loop(
            lambda turn, y: turn < 2,
            lambda turn, y: (turn + 1, y + w * w),
            (0, x),
            maximum_iterations=2,
        )[1]

    run = tape_inside(sums, jit_compile=True)
    with amanda.apply(before("Mul", lambda w: w * 2, inputs=[1], pure=True)):
        _, dw = run(tf.constant(X), tf.constant(W), tf.constant(0))
    np.testing.assert_allclose(dw, 2 * (2 * W + W))


@pytest.mark.parametrize("pure", [False, True], ids=["host", "pure"])
def test_in_a_loop_of_version_1_it_is_refused_where_the_gradient_runs(pure):
    tf.compat.v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            x, w = tf.compat.v1.placeholder(tf.float32, [2]), tf.constant(W)
            y = straight(x, w, None)
            (dw,) = tf.gradients(y, w)
            tool = before("Mul", lambda w: w * 2, inputs=[1], pure=pure)
            error = amanda.UnsupportedError if pure else amanda.RoutineError
            with amanda.apply(tool):
                np.testing.assert_allclose(session.run(y, {x: X}), 8 * X * W**3)
                with pytest.raises(error, match=r"while/Mul.*enable_control_flow_v2"):
                    session.run(dw, {x: X})
            with amanda.apply(before("Mul", lambda w: None, inputs=[1])):
                np.testing.assert_allclose(session.run(dw, {x: X}), 3 * X * W**2)
    finally:
        tf.compat.v1.enable_control_flow_v2()


@pytest.mark.parametrize("taped", [tape_around, tape_inside])
def test_both_inputs_of_an_operator_and_two_operators(taped):
    """For y * w + w * w, with w doubled in both products, and y doubled in the first one."""

    def program(x, w, turns):
        def body(turn, y):
            return turn + 1, tf.multiply(y, w, name="one") + tf.multiply(w, w, name="other")

        return tf.while_loop(lambda turn, y: turn < 2, body, (tf.constant(0), x))[1]

    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: ctx.insert_before_op(lambda a, b: (a * 2, b * 2)), ops=["Mul"])
    with amanda.apply(tool):
        dx, dw = taped(program)(tf.constant(X), tf.constant(W), tf.constant(0))
    # each turn gives 4 * y * w + 4 * w * w; straight through, dy is 2 * w, and dw is 2 * y + 4 * w
    first = 4 * X * W + 4 * W * W
    np.testing.assert_allclose(dx, 4 * W * W)
    np.testing.assert_allclose(dw, (2 * first + 4 * W) + 2 * W * (2 * X + 4 * W))


def test_a_tensor_that_two_gradients_read_in_a_loop_of_version_1():
    """The gradient of Tanh reads what that gave, and the one of Sin twice that."""
    tf.compat.v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            x = tf.constant([0.3, -0.2])
            y = tf.while_loop(
                lambda turn, x: turn < 1, lambda turn, x: (turn + 1, tf.sin(tf.tanh(x))), (0, x)
            )[1]
            with amanda.apply(before("Sin", lambda t: t * 2, pure=True)):
                found = session.run(tf.gradients(y, x)[0])
    finally:
        tf.compat.v1.enable_control_flow_v2()
    t = np.tanh([0.3, -0.2])
    np.testing.assert_allclose(found, np.cos(2 * t) * (1 - t * t), rtol=1e-5)
