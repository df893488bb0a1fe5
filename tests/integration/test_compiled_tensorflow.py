"""Functions that XLA compiles are held to their operators: the first that differs is named.

A number that no integer can be is the greatest one by XLA, and the least one on a processor.
"""

import linecache

import amanda
import keras
import numpy as np
import pytest
import tensorflow as tf
from amanda_tools import Compiled, Flops, compare

GREATEST, LEAST = 2**31 - 1, -(2**31)


def plain(x):
    y = tf.tanh(x) * 2
    z = tf.cast(y * 1e20, tf.int32)  # what differs
    return tf.reduce_sum(y), z


def held(function, *args):
    tool = Compiled()
    with amanda.apply(tool):
        results = function(*args)
    return tool, results


def line_of(row):
    file, _, line = row.source.rpartition(":")
    return linecache.getline(file, int(line)).strip()


def test_names_the_operator_and_its_line():
    tool, (_, found) = held(tf.function(plain, jit_compile=True), tf.ones(3))
    (row,) = tool.rows()
    assert (row.id, row.type, row.differs, row.dtype) == ("Cast", "Cast", True, "int32")
    assert line_of(row) == "z = tf.cast(y * 1e20, tf.int32)  # what differs"
    assert row.absolute == GREATEST - LEAST
    assert found.numpy().tolist() == [GREATEST] * 3


def test_a_function_that_another_one_calls_is_held_at_its_first_call():
    inner, runs = tf.function(plain, jit_compile=True), tf.Variable(0)

    @tf.function
    def outer(x):
        for _ in tf.range(3):
            runs.assign_add(1)
            x = tf.cast(inner(x)[1], tf.float32)
        return x

    tool, found = held(outer, tf.ones(3))
    assert [row.type for row in tool.rows()] == ["Cast"]
    assert (found.numpy().tolist(), runs.numpy()) == ([GREATEST + 1.0] * 3, 3)


def test_what_is_written_to_variables_is_held_and_written_once():
    total, whole = tf.Variable(1.0), tf.Variable([0, 0])

    @tf.function(jit_compile=True)
    def step(x):
        total.assign_add(tf.reduce_sum(x))
        whole.assign(tf.cast(x * 1e20, tf.int32))

    tool, _ = held(step, tf.ones(2))
    assert tool.first().type == "Cast"
    assert (total.numpy(), whole.numpy().tolist()) == (3.0, [GREATEST] * 2)


def test_a_model_of_keras_is_held():
    class Whole(keras.layers.Layer):
        def call(self, x):
            return tf.cast(x * 1e20, tf.int32)

    model = keras.Sequential([keras.Input((4,)), Whole(name="whole")], name="net")
    model.compile(jit_compile=True)
    tool, found = held(model.predict_on_batch, np.ones((2, 4), np.float32))
    assert (tool.first().id, tool.totals()["pieces"]) == ("net/whole/Cast", 1)
    assert found.ravel().tolist() == [GREATEST] * 8


def test_a_comparison_of_eager_and_compiled_names_the_operator():
    x = tf.constant([[0.5, -0.25]])
    compiled = tf.function(plain, jit_compile=True)
    found = compare(lambda: tf.function(plain)(x)[1], lambda: compiled(x)[1])
    assert (found.first().type, found.first().compared) == ("Cast", "compiled")
    assert found.rows()[-1].differs


def test_what_cannot_be_held_is_refused():
    with tf.Graph().as_default() as graph:
        number = tf.function(plain, jit_compile=True)(tf.ones(3))[0]
    with tf.compat.v1.Session(graph=graph) as session:
        with pytest.raises(amanda.UnsupportedError, match="compiled by XLA in a session"):
            held(session.run, number)
        session.run(number)
    tf.config.optimizer.set_jit(True)
    try:
        with pytest.raises(amanda.UnsupportedError, match="set_jit"):
            held(tf.function(plain), tf.ones(3))
    finally:
        tf.config.optimizer.set_jit(False)


def test_is_refused_beside_tools_that_look_at_operators():
    refused = pytest.raises(amanda.UnsupportedError, match="in another scope")
    with refused, amanda.apply(Flops(), Compiled()):
        pass
    with amanda.apply(Compiled()), refused, amanda.apply(Flops()):
        pass
    tool, _ = held(tf.function(plain), tf.ones(3))
    assert tool.found() == "no compiled code ran"
