"""Functions with a custom gradient, under tools that change what they take and give (S3)."""

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Count, Insert, after, before, host_and_pure
from straight_through import assert_close
from tensorflow.compat import v1

RNG = np.random.default_rng(0)
W = RNG.normal(size=(4, 4)).astype(np.float32)
X = RNG.normal(size=(3, 4)).astype(np.float32)


def mask(t):
    return t * tf.cast(tf.abs(t) > 0.5, t.dtype)


def masked(array):
    return array * (np.abs(array) > 0.5)


def loss_of(function, x):
    """In a scope: TensorFlow keeps such graphs for good, and no other test is to get their ids."""
    with tf.name_scope("custom"):
        return tf.reduce_sum(function(x) ** 2)


def tape_inside(function):
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = loss_of(function, x)
        return tape.gradient(loss, x)

    return step(tf.constant(X)).numpy()


def tape_around(function):
    x, loss_at = tf.constant(X), tf.function(lambda x: loss_of(function, x))
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = loss_at(x)
    return tape.gradient(loss, x).numpy()


def session(function):
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [3, 4])
        (gradient,) = tf.gradients(loss_of(function, x), [x])
        return session.run(gradient, {x: X})


each_way = pytest.mark.parametrize(
    "gradient_of", [tape_inside, tape_around, session], ids=lambda f: f.__name__
)


@tf.custom_gradient
def product(x):
    """x @ W, with its gradient written out."""
    weight = tf.constant(W)
    return tf.matmul(x, weight), lambda dy: tf.matmul(dy, weight, transpose_b=True)


def product_with(weight):
    """As a layer has it: the weight comes from outside."""

    @tf.custom_gradient
    def product(x):
        return tf.matmul(x, weight), lambda dy: tf.matmul(dy, tf.transpose(weight))

    return product


@tf.custom_gradient
def softplus(x):
    """log(1 + exp(x)); its gradient computes exp(x) again."""
    return tf.math.log1p(tf.exp(x)), lambda dy: dy * tf.exp(x) / (1.0 + tf.exp(x))


@tf.custom_gradient
def exponential(x):
    """exp(x), whose gradient reads the result."""
    y = tf.exp(x)
    return y, lambda dy: dy * y


@tf.custom_gradient
def cubed(x):
    """x * x * x by two multiplications; its gradient reads the square."""
    square = x * x
    return tf.multiply(square, x, name="cube"), lambda dy: dy * 3.0 * square


def silu(x):
    return x / (1 + np.exp(-x))


def silu_slope(x):
    s = 1 / (1 + np.exp(-x))
    return s * (1 + x * (1 - s))


@each_way
@pytest.mark.parametrize("function", [tf.nn.silu, softplus], ids=["silu", "softplus"])
def test_only_its_forward_operators_are_counted(gradient_of, function):
    count = Count(["Sigmoid", "Exp", "Log1p"])
    with amanda.apply(count):
        actual = gradient_of(function)
    assert_close([actual], [gradient_of(function)])
    types = sorted(id.removeprefix("custom/").partition("#")[0] for id in count.counts)
    assert types == {tf.nn.silu: ["Sigmoid"], softplus: ["Exp", "Log1p"]}[function]


@each_way
@host_and_pure
def test_a_masked_input_is_what_the_gradient_reads(gradient_of, pure):
    with amanda.apply(before("Exp", mask, pure=pure)):
        actual = gradient_of(softplus)
    e = np.exp(masked(X))
    assert_close([actual], [2 * np.log1p(e) * e / (1 + e)])


@each_way
@host_and_pure
def test_a_masked_weight_is_what_the_gradient_reads(gradient_of, pure):
    with amanda.apply(before("MatMul", mask, inputs=[1], pure=pure)):
        actual = gradient_of(lambda x: product_with(tf.constant(W))(x))
    assert_close([actual], [2 * X @ masked(W) @ masked(W).T])


@each_way
@host_and_pure
def test_a_changed_result_is_not_what_the_gradient_reads(gradient_of, pure):
    with amanda.apply(after("Exp", lambda y: 3.0 * y, pure=pure)):
        actual = gradient_of(exponential)
    assert_close([actual], [2 * 3 * np.exp(X) * np.exp(X)])


@each_way
@host_and_pure
def test_an_operator_and_the_result_that_follows_from_its_input(gradient_of, pure):
    with amanda.apply(before("Exp", mask, pure=pure)):
        actual = gradient_of(exponential)
    assert_close([actual], [2 * np.exp(masked(X)) ** 2])


@each_way
def test_a_gradient_that_is_changed_is_that_of_the_function(gradient_of):
    tool = Insert("insert_on_grad_inputs", "IdentityN", lambda g: 5.0 * g, inputs=[1])
    with amanda.apply(tool):
        actual = gradient_of(tf.nn.silu)
    assert_close([actual], [5 * 2 * silu(X) * silu_slope(X)])


CHANGES = [
    pytest.param(tf.nn.silu, "Sigmoid", "insert_before_op", id="what-it-computes-inside"),
    pytest.param(tf.nn.silu, "Sigmoid", "insert_after_op", id="a-result-inside"),
    pytest.param(tf.nn.silu, "Mul", "insert_before_op", id="an-input-one-time-of-two"),
    pytest.param(softplus, "Exp", "insert_after_op", id="what-the-gradient-computes-again"),
    pytest.param(cubed, "Mul", "insert_after_op", id="what-the-gradient-reads-too"),
    pytest.param(product, "MatMul", "insert_before_op", id="a-constant-of-its-own"),
]


def halve(*tensors):
    return [0.5 * t for t in tensors]


@each_way
@pytest.mark.parametrize(("function", "type", "insertion"), CHANGES)
def test_what_parts_it_from_its_gradient_is_refused(gradient_of, function, type, insertion):
    with (
        amanda.apply(Insert(insertion, type, halve, pure=True)),
        pytest.raises(amanda.UnsupportedError, match=f"Insert: '.*{type}.*custom gradient.*ops="),
    ):
        gradient_of(function)


@each_way
@pytest.mark.parametrize(("function", "type", "insertion"), CHANGES)
def test_what_parts_it_from_its_gradient_is_refused_of_the_host(
    gradient_of, function, type, insertion
):
    with (
        amanda.apply(Insert(insertion, type, halve)),
        pytest.raises(amanda.AmandaError, match=f"(?s)Insert.*{type}.*custom gradient.*ops="),
    ):
        gradient_of(function)


def test_without_its_gradient_all_may_be_changed():
    with amanda.apply(after("Sigmoid", lambda y: 3.0 * y, pure=True)):
        actual = tf.function(lambda x: loss_of(tf.nn.silu, x))(tf.constant(X))
    assert_close([actual], [((3 * silu(X)) ** 2).sum()])


@host_and_pure
def test_a_branch_inside_is_refused(pure):
    @tf.custom_gradient
    def chosen(x):
        result = tf.cond(tf.reduce_sum(x) < 100.0, lambda: tf.exp(x), lambda: x)
        return result, lambda dy: dy * result

    with (
        amanda.apply(before("Exp", mask, pure=pure)),
        pytest.raises(amanda.AmandaError, match=r"(?s)Insert.*Exp.*custom gradient"),
    ):
        tape_inside(chosen)
