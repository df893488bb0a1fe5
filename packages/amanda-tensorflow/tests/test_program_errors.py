"""Errors of the program's own graph are those that it would see without tools."""

import contextlib
import traceback

import amanda
import keras
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Count, fail, scale
from tensorflow.compat import v1
from tensorflow.python.util import traceback_utils

TOOLS = [lambda: Count(), lambda: scale("Mul", 1.0, pure=True)]
each_tool = pytest.mark.parametrize("tool", TOOLS, ids=["host", "pure"])


def session_error(tool):
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [2])
        with tf.name_scope("layer"):
            y = v1.check_numerics(x * 2.0, "odd", name="mine")
        scope = contextlib.nullcontext() if tool is None else amanda.apply(tool)
        failing = pytest.raises(tf.errors.InvalidArgumentError)
        with v1.Session() as session, scope, failing as caught:
            session.run(y + 1.0, {x: [np.nan, 1.0]})
    return caught.value


@each_tool
def test_in_a_session_an_error_has_the_operation_at_fault(tool):
    error, expected = session_error(tool()), session_error(None)
    assert error.op.name == expected.op.name == "layer/mine"
    assert error.node_def == expected.node_def
    assert error.message.splitlines()[0] == expected.message.splitlines()[0]
    assert "amanda_copy" not in str(error)


@each_tool
def test_a_function_names_its_node_and_where_it_was_made(tool):
    def check(x):
        return tf.debugging.check_numerics(x * 2.0, "odd", name="mine")

    @tf.function
    def function(x):
        return tf.cond(x[0] > 0.0, lambda: check(x), lambda: x) + 1.0

    function(tf.zeros([2]))
    with pytest.raises(tf.errors.InvalidArgumentError) as plain:
        function(tf.constant([1.0, np.nan]))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught, amanda.apply(tool()):
        function(tf.constant([1.0, np.nan]))
    shown, expected = caught.value.message, plain.value.message
    assert "Detected at node cond/mine" in shown
    assert "__amanda_" not in shown
    assert shown.splitlines()[-1] == expected.splitlines()[-1]
    assert shown.count("Detected at node") == expected.count("Detected at node")


def frames(error):
    """Files and lines of a traceback."""
    return [(entry.filename, entry.lineno) for entry in traceback.extract_tb(error.__traceback__)]


def raised(run, kind):
    with pytest.raises(kind) as caught:
        run()
    return caught.value


@each_tool
@pytest.mark.parametrize("filtering", [True, False])
def test_a_traceback_is_as_short_as_without_tools(tool, filtering):
    @tf.function
    def function(x):
        return tf.debugging.check_numerics(x * 2.0, "odd")

    function(tf.zeros([2]))

    def run():
        function(tf.constant([1.0, np.nan]))

    try:
        if not filtering:
            tf.debugging.disable_traceback_filtering()
        plain = frames(raised(run, tf.errors.InvalidArgumentError))
        with amanda.apply(tool()):
            under = frames(raised(run, tf.errors.InvalidArgumentError))
            assert tf.debugging.is_traceback_filtering_enabled() is filtering
    finally:
        tf.debugging.enable_traceback_filtering()
    if filtering:
        assert under == plain
    else:
        assert len(under) > len(plain) > 4


def in_a_function():
    tf.function(lambda x: tf.matmul(x, x))(tf.ones([2, 2]))


def predicting():
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)]).predict(np.ones((2, 2)), verbose=0)


def in_a_layer_that_calls_a_function():
    class Layer(keras.layers.Layer):
        def call(self, x):
            return function(x)

    function = tf.function(lambda x: tf.matmul(x, x))
    Layer()(tf.ones([2, 2]))


@pytest.mark.parametrize("program", [in_a_function, predicting, in_a_layer_that_calls_a_function])
def test_a_routine_s_error_keeps_its_cause(program):
    with amanda.apply(fail("MatMul", KeyError("lost"))):
        error = raised(program, amanda.RoutineError)
    assert repr(error.__cause__) == "KeyError('lost')"
    assert "Arguments received" not in str(error)
    files = [file for file, _ in frames(error)]
    assert not any("polymorphic_function" in file for file in files)


def test_nothing_of_that_is_left_after_the_scope():
    before = traceback_utils._process_traceback_frames
    with amanda.apply(fail("MatMul", KeyError("lost"))):
        raised(in_a_function, amanda.RoutineError)
        assert traceback_utils._process_traceback_frames is not before
    assert traceback_utils._process_traceback_frames is before
