"""Errors of the program's own graph are those that it would see without tools."""

import contextlib

import amanda
import numpy as np
import pytest
import tensorflow as tf
from probes import Count, times
from tensorflow.compat import v1

TOOLS = [lambda: Count(), lambda: times(1.0, ["Mul"], pure=True)]
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
    assert "amanda_shadow" not in str(error)


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
