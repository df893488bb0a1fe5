"""Gradients of many elements at once, as of a Jacobian: S3 holds, or the change is refused."""

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Count, Insert, before, host_and_pure, recorded, under

X = np.float32([[0.3, -0.2], [0.1, 0.4]])
W = np.float32([[0.5, -0.4], [0.2, 0.1]])


def doubled(ops, **options):
    return before(ops, lambda x: x * 2, inputs=[0], **options)


def jacobian():
    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.tanh(tf.matmul(x, W))
        return y, tape.batch_jacobian(y, x)

    return run(tf.constant(X))


def gradients_of_each(loss):
    @tf.function
    def run(x):
        def of_one(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = loss(x)
            return y, tape.gradient(y, x)

        return tf.vectorized_map(of_one, x)

    return lambda: run(tf.constant(X))


@host_and_pure
def test_a_jacobian_in_a_function(pure):
    y, slopes = under(doubled("Tanh", pure=pure), jacobian)
    expected = np.tanh(2 * X @ W)
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    np.testing.assert_allclose(slopes, (1 - expected**2)[:, :, None] * W.T, rtol=1e-5)


def test_what_a_jacobian_reads_of_an_operator_is_substituted_and_no_operator():
    count, tool = Count("MatMul"), before("MatMul", lambda w: w * 2, inputs=[1])
    with amanda.apply(count, tool):
        y, slopes = jacobian()
    np.testing.assert_allclose(slopes, (1 - y.numpy() ** 2)[:, :, None] * 2 * W.T, rtol=1e-5)
    assert list(count.counts.values()) == [1]


@host_and_pure
def test_a_gradient_for_each_element(pure):
    run = gradients_of_each(lambda x: tf.reduce_sum(tf.sin(x) * 3))
    y, gradients = under(doubled("Sin", pure=pure), run)
    np.testing.assert_allclose(y, 3 * np.sin(2 * X).sum(1), rtol=1e-5)
    np.testing.assert_allclose(gradients, 3 * np.cos(2 * X), rtol=1e-5)


def test_gradients_of_many_elements_are_said_not_to_be_seen():
    tool = Insert("insert_on_grad_inputs", "Tanh", lambda gradient: None)
    with pytest.warns(amanda.AmandaWarning, match=r"Tanh.*many elements at once"):
        under(tool, jacobian)


def test_a_part_of_what_was_vectorized_cannot_be_changed():
    run = gradients_of_each(lambda x: tf.reduce_sum(tf.tanh(tf.matmul(x[None], W))))
    for error, pure in ((amanda.UnsupportedError, True), (amanda.RoutineError, False)):
        with pytest.raises(error, match=r"loop_body/MatMul.*tf\.map_fn"):
            under(doubled("MatMul", pure=pure), run)
    assert recorded(run, "MatMul", "Tanh") == ["MatMul", "Tanh"]


def twice(x):
    return tf.while_loop(lambda turn, x: turn < 2, lambda turn, x: (turn + 1, tf.sin(x)), (0, x))[1]


def tape_inside():
    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = twice(x)
        return tape.jacobian(y, x)

    return run(tf.constant(X[0]))


def tape_around():
    called = tf.function(lambda x: tf.sin(x))
    function, x = tf.function(lambda x: called(x)), tf.constant(X[0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.jacobian(y, x)


@pytest.mark.parametrize("run", [tape_inside, tape_around])
def test_what_a_jacobian_goes_through_in_a_loop_or_call_cannot_be_changed(run):
    with pytest.raises(amanda.UnsupportedError, match=r"Sin.*experimental_use_pfor=False"):
        under(doubled("Sin", pure=True), run)


def called(x):
    return tf.function(lambda x: tf.sin(x) * 3)(x)


@pytest.mark.parametrize("part", [called, twice])
def test_what_a_vectorized_map_calls_cannot_be_changed_with_its_gradient_in_there(part):
    run = gradients_of_each(lambda x: tf.reduce_sum(part(x)))
    for error, pure in ((amanda.UnsupportedError, True), (amanda.RoutineError, False)):
        with pytest.raises(error, match=r"Sin.*tf\.map_fn"):
            under(doubled("Sin", pure=pure), run)


def test_what_a_vectorized_map_calls_can_be_changed_with_its_gradient_outside():
    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.vectorized_map(called, x)
        return tape.gradient(y, x)

    gradients = under(doubled("Sin", pure=True), lambda: run(tf.constant(X)))
    np.testing.assert_allclose(gradients, 3 * np.cos(2 * X), rtol=1e-5)


def gradients_alone(loss):
    @tf.function
    def run(x):
        def of_one(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = loss(x)
            return tape.gradient(y, x)

        return tf.vectorized_map(of_one, x)

    return lambda: run(tf.constant(X))


def test_an_operator_that_a_vectorized_map_leaves_out_cannot_be_changed_for_its_gradient():
    run = gradients_alone(lambda x: tf.reduce_sum(tf.sin(x)))
    with pytest.raises(amanda.UnsupportedError, match=r"Sin.*return the result"):
        under(doubled("Sin", pure=True), run)
    with pytest.warns(amanda.AmandaWarning, match=r"Sin.*return the result"):
        under(doubled("Sin"), run)

    def always(x) -> tf.Tensor:
        return x * 2

    with pytest.raises(amanda.UnsupportedError, match=r"Sin.*return the result"):
        under(before("Sin", always), run)


def test_an_operator_that_a_vectorized_map_leaves_out_may_be_looked_at():
    run = gradients_alone(lambda x: tf.reduce_sum(tf.sin(x)))

    def look(*tensors) -> None:
        raise AssertionError("the operator does not run")

    gradients = under(before("Sin", look), run)
    np.testing.assert_allclose(gradients, np.cos(X), rtol=1e-5)


def test_gradients_that_a_function_takes_by_a_tape_around_it_are_said_not_to_be_seen():
    function, x = tf.function(lambda x: tf.tanh(tf.matmul(x, W))), tf.constant(X)

    def run():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tf.function(lambda: tape.gradient(y, x))()

    tools = [
        Insert("insert_on_grad_inputs", "Tanh", lambda gradient: None),
        doubled("MatMul", pure=True),
    ]
    with pytest.warns(amanda.AmandaWarning, match=r"Tanh.*with the tape in it"):
        under(tools, run)


@pytest.mark.parametrize("changed", [(), ("MatMul",)], ids=["as it is", "changed"])
@pytest.mark.parametrize("at", ["insert_on_grad_inputs", "insert_before_backward_op"])
def test_gradients_of_a_jacobian_around_a_function_are_said_not_to_be_seen(at, changed):
    function, x = tf.function(lambda x: tf.tanh(tf.matmul(x, W))), tf.constant(X)

    def run():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.jacobian(y, x)

    tools = [Insert(at, None, lambda *gradients: None), *(doubled(op, pure=True) for op in changed)]
    with pytest.warns(amanda.AmandaWarning, match=r"tools do not see the .*Tanh \(Tanh\)"):
        under(tools, run)
