"""What runs eagerly is in no graph: tools do not see it, and that is said once in each scope."""

import contextlib
import warnings

import amanda
import keras
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Count

X = np.ones((2, 4), np.float32)


@contextlib.contextmanager
def said(times):
    """The warnings about operators that run eagerly are as many."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    messages = [str(warning.message) for warning in caught]
    assert sum("run eagerly; call them in a tf.function" in m for m in messages) == times, messages


def dense():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])


def under_a_tape():
    x = tf.Variable(X)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.matmul(x, tf.ones([4, 3])))
    assert tape.gradient(loss, x) is not None


@pytest.mark.parametrize(
    "program",
    [lambda: tf.matmul(X, X.T), lambda: dense()(X), under_a_tape, lambda: tf.sin(X)],
    ids=["operator", "model", "tape", "no layer"],
)
@pytest.mark.parametrize("ops", [None, ["MatMul", "Sin"]])
def test_it_is_said_once_in_each_scope(program, ops):
    for _ in range(2):
        with said(1), amanda.apply(Count(ops)):
            program()
            program()


def test_the_operator_and_the_way_out_are_named():
    with pytest.warns(UserWarning, match="nothing of MatMul.*tf.function.*predict") as caught:  # noqa: SIM117
        with amanda.apply(Count()):
            tf.matmul(X, X.T)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "program",
    [
        lambda: dense().predict(X, verbose=0),
        lambda: tf.function(lambda x: tf.matmul(x, x, transpose_b=True))(tf.constant(X) + 1.0),
    ],
    ids=["predict", "function"],
)
def test_nothing_is_said_of_what_a_program_does_around_its_graphs(program):
    with said(0), amanda.apply(Count()):
        program()


def test_nothing_is_said_of_training_by_fit():
    model = dense()
    model.compile("adam", "mse", metrics=["mae"])
    with said(0), amanda.apply(Count(), Count(["Mul", "MatMul", "AddV2", "Sqrt"])):
        model.fit(X, X[:, :3], verbose=0)


def test_nothing_is_said_of_types_that_no_tool_wants():
    with said(0), amanda.apply(Count("Conv2D")):
        tf.matmul(X, X.T)


def test_nothing_is_said_of_what_routines_do():
    tool = amanda.Tool()
    tool.add_inst_for_op(
        lambda ctx: ctx.insert_before_op(lambda x: tf.matmul(x, tf.eye(4)), inputs=[0])
    )
    with said(0), amanda.apply(tool):
        tf.function(tf.nn.relu)(tf.constant(X))


def test_nothing_is_said_without_tools_or_when_they_are_disabled():
    with said(0):
        tf.matmul(X, X.T)
        with amanda.apply(Count()), amanda.disabled():
            tf.matmul(X, X.T)
