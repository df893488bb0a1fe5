"""Routines that ask for the forward side, and replacements that run the operator itself."""

import gc

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Insert, host_and_pure, replace, under

X = np.array([[1.0, -2.0, 3.0]], np.float32)


def on_grad_inputs(ops, routine, **options):
    return Insert("insert_on_grad_inputs", ops, routine, **options)


def adding_inputs(pure):
    """Adds to the gradient of a square ten times what the operator was given."""
    return on_grad_inputs("Square", lambda g, x: g + x * 10, with_inputs=[0], pure=pure)


def gradient_under_a_tape(function):
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x).numpy()


def gradient(function):
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x)

    return step(tf.constant(X)).numpy()


WAYS = pytest.mark.parametrize("take", [gradient_under_a_tape, gradient])


class TestWhereTheGradientIs:
    @host_and_pure
    @WAYS
    def test_in_a_function_that_is_called(self, take, pure):
        inner = tf.function(lambda x: tf.square(x) * 1.5)
        outer = tf.function(lambda x: inner(x + 1))
        with amanda.apply(adding_inputs(pure)):
            for _ in range(2):
                np.testing.assert_allclose(take(outer), 3 * (X + 1) + 10 * (X + 1))

    @host_and_pure
    @WAYS
    def test_in_a_branch(self, take, pure):
        @tf.function
        def branching(x):
            return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.square(x * 2), lambda: tf.square(x * 3))

        found = under(adding_inputs(pure), lambda: take(branching))
        np.testing.assert_allclose(found, 2 * (8 * X / 2 + 20 * X))

    @host_and_pure
    @WAYS
    def test_in_a_loop_each_turn_has_its_own(self, take, pure):
        @tf.function
        def looping(x):
            for _ in tf.range(2):
                x = tf.square(x)
            return x

        found = under(adding_inputs(pure), lambda: take(looping))
        second = 2 * X**2 + 10 * X**2  # at the second turn, for a gradient of one
        np.testing.assert_allclose(found, second * 2 * X + 10 * X)

    @host_and_pure
    def test_in_a_loop_what_no_turn_changes_comes_by_no_list_of_another_shape(self, pure):
        tool = on_grad_inputs("MatMul", lambda g, m: g + m, inputs=[1], with_given=[1], pure=pure)

        @tf.function
        def looping(x):
            matrix = tf.transpose(x) * tf.constant([[1.0, 2.0]])
            for _ in tf.range(2):
                x = tf.square(x) * tf.reduce_sum(tf.matmul(tf.constant([[1.0, 0.0, 1.0]]), matrix))
            return x

        # each of two turns adds the matrix, by (1, 2), to its gradient
        found = under(tool, lambda: gradient(looping))
        np.testing.assert_allclose(found - gradient(looping), 10 * X, rtol=1e-5)
        with pytest.raises(amanda.UnsupportedError, match=r"asks for given\[1\], which nothing"):
            under(tool, lambda: gradient_under_a_tape(looping))

    @host_and_pure
    def test_what_the_gradient_does_not_read_comes_too(self, pure):
        tool = on_grad_inputs("AddV2", lambda g, x: g + x, inputs=[0], with_inputs=[0], pure=pure)
        found = under(tool, lambda: gradient_under_a_tape(tf.function(lambda x: (x + 1) * x)))
        np.testing.assert_allclose(found, 2 * X + 1 + X)

    @host_and_pure
    def test_what_nothing_brings_there_is_refused_by_name(self, pure):
        tool = on_grad_inputs("Neg", lambda g, x: g + x, with_inputs=[0], pure=pure)
        function = tf.function(lambda x: tf.negative(x))
        with pytest.raises(amanda.UnsupportedError, match=r"asks for inputs\[0\], which nothing"):
            under(tool, lambda: gradient_under_a_tape(function))
        np.testing.assert_allclose(under(tool, lambda: gradient(function)), X - 1)

    @host_and_pure
    def test_in_a_session(self, pure):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            x = tf.compat.v1.placeholder(tf.float32, [1, 3])
            (dx,) = tf.compat.v1.gradients(tf.square(x), x)
            with amanda.apply(adding_inputs(pure)):
                found = session.run(dx, {x: X})
            plain = session.run(dx, {x: X})
        np.testing.assert_allclose(found, 12 * X)
        np.testing.assert_allclose(plain, 2 * X)

    def test_a_loop_of_version_1_is_refused_by_name(self):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            control_flow = tf.compat.v1.control_flow_v2_enabled()
            tf.compat.v1.disable_control_flow_v2()
            try:
                x = tf.compat.v1.placeholder(tf.float32, [1, 3])
                _, y = tf.compat.v1.while_loop(
                    lambda i, y: i < 2, lambda i, y: (i + 1, tf.square(y)), [tf.constant(0), x]
                )
                (dx,) = tf.compat.v1.gradients(y, x)
            finally:
                if control_flow:
                    tf.compat.v1.enable_control_flow_v2()
            with pytest.raises(amanda.UnsupportedError, match="nothing brings"):
                under(adding_inputs(False), lambda: session.run(dx, {x: X}))
            np.testing.assert_allclose(session.run(dx, {x: X}), 4 * X**3)


class TestWhichExecution:
    def test_several_forwards_before_their_backwards(self):
        function = tf.function(lambda x: tf.square(x) * 1.0)
        inputs = [tf.constant(X * scale) for scale in (1.0, 2.0, 3.0)]
        with amanda.apply(adding_inputs(False)):
            with tf.GradientTape(persistent=True) as tape:
                for x in inputs:
                    tape.watch(x)
                outputs = [function(x) for x in inputs]
            for x, y in zip(inputs, outputs, strict=True):
                np.testing.assert_allclose(tape.gradient(y, x), 12 * x.numpy())

    def test_what_is_handed_on_is_freed_with_the_tape(self):
        function = tf.function(lambda x: tf.exp(x + 1) * 2.0)
        tool = on_grad_inputs("Exp", lambda g, x: None, with_inputs=[0])
        x = tf.ones([1, 41])

        def alive():
            gc.collect()
            tensors = [t for t in gc.get_objects() if isinstance(t, tf.__internal__.EagerTensor)]
            return sum(t.shape == x.shape for t in tensors)

        with amanda.apply(tool):
            for _ in range(2):
                before = alive()
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = function(x)
                assert alive() > before + 1
                tape.gradient(y, x)
                del tape, y
                assert alive() == before


class TestOriginal:
    @host_and_pure
    def test_attributes_stay(self, pure):
        x = tf.reshape(tf.range(32, dtype=tf.float32), [1, 4, 4, 2])
        w = tf.ones([2, 2, 2, 3])
        function = tf.function(lambda x, w: tf.nn.conv2d(x, w, 2, "VALID"))
        tool = replace(
            "Conv2D", lambda original, x, w: original(x * 2, w) + 1, original=True, pure=pure
        )
        plain = function(x, w)
        np.testing.assert_allclose(under(tool, lambda: function(x, w)), plain * 2 + 1)

    @host_and_pure
    def test_several_outputs(self, pure):
        function = tf.function(lambda x: tf.math.top_k(x, 2))
        tool = replace(
            "TopKV2",
            lambda original, x, k: [original(x, k)[0] * 2, original(x, k)[1]],
            original=True,
            pure=pure,
        )
        values, indices = under(tool, lambda: function(tf.constant(X)))
        assert values.numpy().tolist() == [[6, 2]]
        assert indices.numpy().tolist() == [[2, 0]]

    @host_and_pure
    def test_a_variable_is_read(self, pure):
        v = tf.Variable([1.0, 2.0])
        function = tf.function(lambda: v + 1)
        tool = replace(
            "ReadVariableOp", lambda original, v: original(v) * 10, original=True, pure=pure
        )
        assert under(tool, function).numpy().tolist() == [11, 21]

    @host_and_pure
    def test_in_a_session(self, pure):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            x = tf.compat.v1.placeholder(tf.float32, [1, 3])
            y = tf.square(x)
            (dx,) = tf.compat.v1.gradients(y * y, x)
            tool = replace("Square", lambda original, x: original(x) * 2, original=True, pure=pure)
            found, gradient = under(tool, lambda: session.run([y, dx], {x: X}))
        np.testing.assert_allclose(found, 2 * X**2)
        np.testing.assert_allclose(gradient, 2 * 2 * X**2 * 2 * X)

    def test_other_shapes_are_run_without_a_warning_of_retracing(self, caplog):
        function = tf.function(tf.sin, input_signature=[tf.TensorSpec([None])])
        tool = replace("Sin", lambda original, x: original(x), original=True)
        with amanda.apply(tool):
            for size in range(1, 8):
                np.testing.assert_allclose(function(tf.ones([size])), [np.sin(1)] * size, 1e-6)
        assert "retracing" not in caplog.text

    def test_what_calls_functions_is_refused_by_name(self):
        inner = tf.function(lambda x: x + 1)
        function = tf.function(lambda x: inner(x))
        tool = replace("StatefulPartitionedCall", lambda original, x: original(x), original=True)
        other = replace("PartitionedCall", lambda original, x: original(x), original=True)
        with pytest.raises(amanda.UnsupportedError, match=r"original=True|carries control flow"):
            under([tool, other], lambda: function(tf.constant(X)))
