"""Small programs that between them rest on each of TensorFlow's private names that the driver uses.

They are run with the oldest and the newest supported version too.
"""

import textwrap

import amanda
import keras
import numpy as np
import tensorflow as tf
from amanda.testing.probes import Count, Insert, host_and_pure, scale

v1 = tf.compat.v1
X = np.array([[1, 2], [3, 4]], np.float32)
W = np.array([[1, -1], [2, 1]], np.float32)


@host_and_pure
def test_a_function_and_its_gradient_by_a_tape(pure):
    w = tf.Variable(W)

    @tf.function
    def f(x):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(tf.matmul(x, w))
        return y, tape.gradient(y, w)

    with amanda.apply(scale("MatMul", 3, pure=pure)):
        y, gradient = f(tf.constant(X))
    np.testing.assert_allclose(y, 3 * (X @ W).sum())
    np.testing.assert_allclose(gradient, np.repeat(X.sum(0)[:, None], 2, 1))  # straight through


def test_a_tape_around_a_function_and_its_gradient_operators():
    w = tf.Variable(W)
    f = tf.function(lambda x: tf.reduce_sum(tf.nn.relu(tf.matmul(x, w))))
    seen = []
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: seen.append(ctx.backward_op.type), backward=True, ops=["Relu"])
    double = Insert("insert_on_grad_inputs", "Relu", lambda g: 2 * g)
    with amanda.apply(tool, double), tf.GradientTape() as tape:
        y = f(tf.constant(X))
    with amanda.apply(tool, double):
        gradient = tape.gradient(y, w)
    positive = (X @ W > 0).astype(np.float32)
    np.testing.assert_allclose(gradient, 2 * X.T @ positive)
    assert seen == ["ReluGrad"]


def test_a_jacobian():
    @tf.function
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.nn.relu(tf.matmul(x, W))
        return tape.batch_jacobian(y, x)

    count = Count("Relu")
    with amanda.apply(count):
        jacobian = f(tf.constant(X))
    np.testing.assert_allclose(jacobian, (X @ W > 0)[:, :, None] * W.T[None])
    assert list(count.counts.values()) == [1]


@host_and_pure
def test_a_while_loop_of_either_version(pure):
    def loop():
        return tf.while_loop(
            lambda i, _: i < 3, lambda i, x: (i + 1, tf.matmul(x, W)), [0, tf.constant(X)]
        )[1]

    expected = 8 * X @ W @ W @ W
    with amanda.apply(scale("MatMul", 2, pure=pure)):
        np.testing.assert_allclose(tf.function(loop)(), expected)
        with tf.Graph().as_default() as graph, v1.Session() as session:
            np.testing.assert_allclose(session.run(loop()), expected)
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
            result = loop()
            with amanda.apply(scale("MatMul", 2, pure=pure)):
                np.testing.assert_allclose(session.run(result), expected)
    finally:
        v1.enable_control_flow_v2()


def test_a_session_that_trains_and_draws():
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, (None, 2))
        w = v1.get_variable("w", initializer=W)
        y = tf.matmul(x, w)
        step = v1.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(y))
        session.run(v1.global_variables_initializer())
        with amanda.apply(scale("MatMul", 2)):
            np.testing.assert_allclose(session.run(y, {x: X}), 2 * X @ W)
            session.run(step, {x: X})
        np.testing.assert_allclose(session.run(w), W - 0.5 * np.repeat(X.sum(0)[:, None], 2, 1))
        session.graph.finalize()
        with amanda.apply(scale("MatMul", 3)):
            np.testing.assert_allclose(session.run(y, {x: X}), 3 * X @ session.run(w))


def test_a_keras_model_is_trained_bit_identically_under_a_tool_that_looks():
    def trained():
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [keras.layers.Dense(4, activation="relu"), keras.layers.LSTM(3), keras.layers.Dense(1)]
        )
        model.compile(optimizer="adam", loss="mse")
        x = np.random.default_rng(0).standard_normal((8, 5, 2)).astype(np.float32)
        model.fit(x, x.sum((1, 2)), epochs=2, batch_size=4, verbose=0)
        return model.get_weights()

    count = Count("MatMul")
    plain = trained()
    with amanda.apply(count):
        observed = trained()
    assert sum(count.counts.values()) > 0
    for one, other in zip(plain, observed, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_saved_model(tmp_path):
    module = tf.Module()
    module.w = tf.Variable(W)
    module.f = tf.function(
        lambda x: tf.matmul(x, module.w), input_signature=[tf.TensorSpec([None, 2], tf.float32)]
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    with amanda.apply(scale("MatMul", 2)):
        np.testing.assert_allclose(loaded.f(tf.constant(X)), 2 * X @ W)


def test_state_of_a_tool_that_a_pure_routine_reads():
    class Scale(amanda.Tool):
        def __init__(self):
            super().__init__()
            self.add_inst_for_op(self.analyze, ops=["MatMul"])

        def analyze(self, ctx):
            self.factor = ctx.variable("factor", np.float32(2))
            ctx.insert_after_op(lambda y, factor: y * factor, factor=self.factor, pure=True)

    f = tf.function(lambda x: tf.matmul(x, W))
    tool = Scale()
    with amanda.apply(tool):
        np.testing.assert_allclose(f(tf.constant(X)), 2 * X @ W)
        tool.factor.assign(np.float32(5))
        np.testing.assert_allclose(f(tf.constant(X)), 5 * X @ W)


def test_a_version_that_lacks_a_name_is_refused_by_this_name(interpreter):
    program = """
        import amanda
        import tensorflow as tf
        from tensorflow.python.eager import imperative_grad
        gradient = imperative_grad.imperative_grad
        del imperative_grad.imperative_grad
        tool = amanda.Tool()
        tool.add_inst_for_op(print)
        try:
            with amanda.apply(tool):
                pass
        except amanda.AmandaError as error:
            print(error)
        imperative_grad.imperative_grad = gradient
        with tf.GradientTape() as tape:
            x = tf.Variable(3.0)
            y = x * x
        print(tape.gradient(y, x).numpy())
    """
    printed = interpreter.run("-c", textwrap.dedent(program), check=True).stdout
    assert f"does not work with tensorflow {tf.__version__}" in printed
    assert "has no tensorflow.python.eager.imperative_grad.imperative_grad" in printed
    assert "python -m pip install 'amanda-tensorflow[tested]'" in printed
    assert printed.endswith("\n6.0\n")
