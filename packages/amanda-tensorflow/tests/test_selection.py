"""Types by other names than those of nodes, and misspelt ones."""

import warnings

import amanda
import pytest
import tensorflow as tf


def seen(ops, run):
    found = []
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: found.append(ctx.op.type), ops=ops)
    with amanda.apply(tool):
        tf.function(run)(tf.ones((2, 2)))
    return found


@pytest.mark.parametrize("name", ["Relu", "raw_ops.Relu", "tf.raw_ops.Relu"])
def test_the_functions_that_make_nodes_stand_for_them(name):
    assert seen([name], tf.nn.relu) == ["Relu"]


@pytest.mark.parametrize(
    ("type", "ran", "run"),
    [
        ("relu", "Relu", tf.nn.relu),
        ("matmul", "MatMul", lambda x: x @ x),
        ("softmax", "Softmax", tf.nn.softmax),
    ],
)
def test_a_misspelt_type_is_named_with_the_one_that_ran(type, ran, run):
    with pytest.warns(amanda.AmandaWarning, match=f"'{type}' of Tool, did you mean '{ran}'"):
        assert seen([type], run) == []


@pytest.mark.parametrize("type", ["ReluGrad", "Conv2DBackpropFilter", "FusedBatchNormGradV3"])
def test_a_type_of_gradients_among_forward_ones_is_warned_of(type):
    def run(x):
        return tf.gradients(tf.nn.relu(x), x)

    with pytest.warns(amanda.AmandaWarning, match=f"backward=True.*'{type}' of Tool"):
        assert seen([type, "Relu"], run) == ["Relu"]


@pytest.mark.parametrize("type", ["StopGradient", "PreventGradient", "Conv2DBackpropInput"])
def test_a_type_that_forward_operators_have_too_is_not_warned_of(type):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen([type, "Relu"], tf.nn.relu)


def test_operators_in_name_scopes_that_a_glob_selects_are_seen_alone():
    found = []
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: found.append(ctx.op.id), ops=["Relu"], scopes=["outer/*"])

    def run(x):
        with tf.name_scope("outer"):
            x = tf.nn.relu(x)
            with tf.name_scope("inner"):
                x = tf.nn.relu(x)
        with tf.name_scope("inner"):
            return tf.nn.relu(x)

    with amanda.apply(tool):
        tf.function(run)(tf.ones((2, 2)))
    assert found == ["outer/inner/Relu"]
