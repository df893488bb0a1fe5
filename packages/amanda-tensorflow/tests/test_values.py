"""``ctx.value``: what is known of an input before the graph runs."""

import amanda
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

KERNEL = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

FORMS = {
    "as it is": (lambda w: w, lambda w: w),
    "cast": (lambda w: tf.cast(w, tf.float16), lambda w: w.astype(np.float16)),
    "reshape": (lambda w: tf.reshape(w, [6, 4]), lambda w: w.reshape(6, 4)),
    "reshape by its own shape": (
        lambda w: tf.reshape(w, tf.stack([-1, tf.shape(w)[2]])),
        lambda w: w.reshape(6, 4),
    ),
    "transpose": (lambda w: tf.transpose(w, [2, 0, 1]), lambda w: w.transpose(2, 0, 1)),
    "expand": (lambda w: tf.expand_dims(w, 0), lambda w: w[None]),
    "squeeze": (lambda w: tf.squeeze(tf.expand_dims(w, 0), [0]), lambda w: w),
    "first of a split": (lambda w: tf.split(w, 2, axis=2)[0], lambda w: w[:, :, :2]),
    "last of a split": (lambda w: tf.split(w, [1, 3], axis=2)[1], lambda w: w[:, :, 1:]),
    "unstack": (lambda w: tf.unstack(w, axis=1)[2], lambda w: w[:, 2]),
    "slice": (lambda w: tf.slice(w, [0, 1, 0], [2, 2, -1]), lambda w: w[:, 1:]),
    "strided slice": (lambda w: w[:, ::2], lambda w: w[:, ::2]),
    "identity of several": (lambda w: tf.identity_n([tf.zeros([1]), w])[1], lambda w: w),
    "several in turn": (
        lambda w: tf.expand_dims(tf.reshape(tf.transpose(tf.cast(w, tf.float16)), [4, 6]), 0),
        lambda w: w.astype(np.float16).transpose().reshape(1, 4, 6),
    ),
}
each_form = pytest.mark.parametrize("form", FORMS)


class Weights(amanda.Tool):
    """Keeps the values of the weights of operators."""

    def __init__(self, ops):
        super().__init__()
        self.values = []
        self.add_inst_for_op(self.analyze, ops=ops)

    def analyze(self, ctx):
        if ctx.weight_index is not None:
            self.values.append(ctx.value(ctx.weight_index))


def times_two(w):
    """Something that takes a weight in whatever form."""
    return tf.multiply(w, tf.constant(2, w.dtype))


@each_form
def test_in_a_function(form):
    shown, expected = FORMS[form]
    variable, tool = tf.Variable(KERNEL), Weights(["Mul"])
    with amanda.apply(tool):
        tf.function(lambda: times_two(shown(variable)), autograph=False)()
    (value,) = tool.values
    np.testing.assert_array_equal(value, expected(KERNEL))
    assert value.dtype == expected(KERNEL).dtype


@each_form
@pytest.mark.parametrize("use_resource", [True, False])
def test_in_a_session(form, use_resource):
    shown, expected = FORMS[form]
    tool = Weights(["Mul"])
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("w", initializer=KERNEL, use_resource=use_resource)
        result = times_two(shown(variable))
        session.run(v1.global_variables_initializer())
        with amanda.apply(tool):
            session.run(result)
    (value,) = tool.values
    np.testing.assert_array_equal(value, expected(KERNEL))


def test_within_branches_and_loops():
    variable, tool = tf.Variable(KERNEL), Weights(["Mul"])

    @tf.function
    def function(x):
        for _ in tf.range(2):
            x += tf.reduce_sum(times_two(tf.transpose(variable)))
        return tf.cond(x > 0, lambda: times_two(variable), lambda: tf.zeros([2, 3, 4]))

    with amanda.apply(tool):
        function(1.0)
    assert sorted(value.shape for value in tool.values) == [(2, 3, 4), (4, 3, 2)]


def test_what_a_loop_changes_is_not_known():
    refused = []
    tool = amanda.Tool()

    def analyze(ctx):
        with pytest.raises(amanda.ValueUnavailableError):
            ctx.value(0)
        refused.append(ctx.op_id)

    tool.add_inst_for_op(analyze, ops=["Mul", "Less"])

    @tf.function
    def function():
        return tf.while_loop(lambda x: x < 10.0, lambda x: x * 3.0, [tf.constant(1.0)])

    with amanda.apply(tool):
        function()
    assert len(refused) == 2


def test_what_depends_on_an_input_is_not_known():
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: ctx.value(0), ops=["Mul"])
    variable = tf.Variable(2.0)
    with pytest.raises(amanda.ValueUnavailableError), amanda.apply(tool):
        tf.function(lambda x: (x + variable) * 3.0)(tf.constant(1.0))


def test_a_constant_that_a_session_is_fed_is_not_known():
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: ctx.value(0), ops=["Mul"])
    with tf.Graph().as_default(), v1.Session() as session:
        constant = tf.constant(1.0)
        result = tf.multiply(tf.expand_dims(constant, 0), 2.0)
        with pytest.raises(amanda.ValueUnavailableError), amanda.apply(tool):
            session.run(result, {constant: 5.0})


class GradientWeights(amanda.Tool):
    """Keeps the values of the weights of operators, as seen from their gradients."""

    def __init__(self, ops):
        super().__init__()
        self.values, self.of_backward = [], []
        self.add_inst_for_gradient(lambda ctx: self.keep(ctx, self.values), ops=ops)
        self.add_inst_for_op(lambda ctx: self.keep(ctx, self.of_backward), backward=True, ops=ops)

    def keep(self, ctx, values):
        if ctx.weight_index is not None:
            values.append(ctx.value(ctx.weight_index))


def loss_of(variable, x):
    return tf.reduce_sum(tf.multiply(tf.transpose(variable), x))


def in_one_function(variable, x):
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = loss_of(variable, x)
        return tape.gradient(loss, variable)

    return step(x)


def by_a_backward_function(variable, x):
    function = tf.function(lambda x: loss_of(variable, x))
    with tf.GradientTape() as tape:
        loss = function(x)
    return tape.gradient(loss, variable)


def of_a_function_within_one(variable, x):
    inner = tf.function(lambda x: loss_of(variable, x))
    outer = tf.function(lambda x: inner(x) + inner(x))
    with tf.GradientTape() as tape:
        loss = outer(x)
    return tape.gradient(loss, variable)


def in_a_branch(variable, x):
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.cond(x[0, 0, 0] > 0, lambda: loss_of(variable, x), lambda: 0.0)
        return tape.gradient(loss, variable)

    return step(x)


WAYS = [in_one_function, by_a_backward_function, of_a_function_within_one, in_a_branch]


@pytest.mark.parametrize("way", WAYS)
def test_gradients_know_the_same_values(way):
    variable, tool = tf.Variable(KERNEL), GradientWeights(["Mul"])
    with amanda.apply(tool):
        way(variable, tf.ones([4, 3, 2]))
    assert tool.values
    assert tool.of_backward
    for value in tool.values + tool.of_backward:
        np.testing.assert_array_equal(value, KERNEL.T)


@pytest.mark.parametrize("use_resource", [True, False])
def test_gradients_in_a_session_know_the_same_values(use_resource):
    tool = GradientWeights(["Mul"])
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("w", initializer=KERNEL, use_resource=use_resource)
        result = tf.gradients(loss_of(variable, tf.ones([4, 3, 2])), variable)
        session.run(v1.global_variables_initializer())
        with amanda.apply(tool):
            session.run(result)
    for value in tool.values + tool.of_backward:
        np.testing.assert_array_equal(value, KERNEL.T)
    assert tool.values


def test_gradients_do_not_know_what_depends_on_an_input():
    tool, refused = amanda.Tool(), []

    def analyze(ctx):
        with pytest.raises(amanda.ValueUnavailableError):
            ctx.value(1)
        refused.append(ctx.op_id)

    tool.add_inst_for_gradient(analyze, ops=["Mul"])
    with amanda.apply(tool):
        by_a_backward_function(tf.Variable(KERNEL), tf.ones([4, 3, 2]))
    assert len(refused) == 1


def test_a_host_routine_has_values_and_a_pure_one_is_told_so() -> None:
    def added(y, numpy):
        return y + numpy(y).sum()

    def run(**options):
        tool = amanda.Tool()
        insert = lambda ctx: ctx.insert_after_op(added, numpy=ctx.numpy, **options)  # noqa: E731
        tool.add_inst_for_op(insert, ops=["Sin"])
        with amanda.apply(tool):
            return tf.function(tf.sin)(tf.constant([1.0, 2.0]))

    with pytest.raises(amanda.RoutineError, match="without pure=True, is given it"):
        run(pure=True)
    plain = np.sin(np.float32([1, 2]))
    np.testing.assert_allclose(run(), plain + plain.sum(), rtol=1e-6)
