"""What the driver tells of TensorFlow's tensors and variables."""

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda import TensorInfo
from amanda_tensorflow import driver

FLOATS = tf.TensorSpec((None, 3), tf.float32)


class Look(amanda.Tool):
    """Notes what is told of the inputs of operators of one type, in analysis and at executions."""

    def __init__(self, type):
        super().__init__()
        self.analyzed, self.executed, self.parameters = [], [], []
        self.is_parameter = []
        self.add_inst_for_op(self.analyze, ops=[type])

    def analyze(self, ctx):
        indices = range(len(ctx.inputs))
        self.analyzed += map(ctx.describe, ctx.inputs)
        self.parameters += map(ctx.parameter, indices)
        self.is_parameter += [index in ctx.parameters for index in indices]

        def note(*tensors) -> None:
            self.executed += map(ctx.describe, tensors)

        ctx.insert_before_op(note)


def looked(type, run):
    tool = Look(type)
    with amanda.apply(tool):
        run()
    return tool


def test_a_size_that_is_not_known_yet_is_none():
    function = tf.function(lambda x: tf.nn.relu(x), input_signature=[FLOATS])
    tool = looked("Relu", lambda: function(tf.ones((2, 3))))
    (before,), (then,) = tool.analyzed, tool.executed
    assert before == TensorInfo((None, 3), "float32", None, None)
    assert then == TensorInfo((2, 3), "float32", 24, "CPU:0")


def test_of_a_tensor_of_unknown_rank_there_is_no_shape():
    function = tf.function(
        lambda x: tf.nn.relu(x), input_signature=[tf.TensorSpec(None, tf.float16)]
    )
    tool = looked("Relu", lambda: function(tf.ones((2, 3), tf.float16)))
    (before,), (then,) = tool.analyzed, tool.executed
    assert before == TensorInfo(None, "float16", None, None)
    assert (then.shape, then.nbytes) == ((2, 3), 12)


def test_strings_have_no_size():
    function = tf.function(lambda x: tf.strings.lower(x))
    tool = looked("StringLower", lambda: function(tf.constant(["A", "BC"])))
    assert tool.executed == [TensorInfo((2,), "string", None, "CPU:0")]


def test_an_array_that_another_routine_returned():
    first, then = amanda.Tool(), Look("Relu")
    first.add_inst_for_op(
        lambda ctx: ctx.insert_before_op(lambda x: np.zeros((2, 3), np.float16)), ops=["Relu"]
    )
    function = tf.function(lambda x: tf.nn.relu(x))
    with amanda.apply(first, then):
        function(tf.ones((2, 3), tf.float16))
    assert then.executed == [TensorInfo((2, 3), "float16", 12, "CPU:0")]


def test_a_device_that_was_asked_for_is_told_in_advance():
    @tf.function
    def function(x):
        with tf.device("/CPU:0"):
            y = x * 2
        return tf.nn.relu(y)

    (before,) = looked("Relu", lambda: function(tf.ones(2))).analyzed
    assert before.device == "CPU:0"


@pytest.mark.parametrize("trainable", [True, False])
@pytest.mark.parametrize(
    "form",
    [
        lambda variable: variable,
        tf.transpose,
        lambda variable: tf.cast(variable, tf.float64),
        lambda variable: tf.reshape(variable, (3, 2))[:2],
    ],
    ids=["itself", "transposed", "cast", "viewed"],
)
def test_a_variable_in_another_form_is_the_parameter(form, trainable):
    variable = tf.Variable(tf.ones((2, 3)), trainable=trainable)
    tool = looked("Relu", lambda: tf.function(lambda: tf.nn.relu(form(variable)))())
    (found,) = tool.parameters
    assert found.source is variable.handle
    assert (found.info.shape, found.info.dtype, found.info.nbytes) == ((2, 3), "float32", 24)
    assert found.trainable is trainable


def test_a_function_within_a_function_is_given_the_same_parameter():
    variable = tf.Variable(tf.ones((2, 3)))
    inner = tf.function(lambda x: tf.nn.relu(variable * x))
    outer = tf.function(lambda: inner(tf.ones(3)) + inner(tf.zeros(3)))
    found = [each for each in looked("Mul", outer).parameters if each is not None]
    assert found
    assert all(each.source is variable.handle for each in found)
    assert all(each.trainable for each in found)


def test_a_handle_has_a_parameter_and_is_none():
    table = tf.Variable(tf.ones((5, 3)))
    tool = looked("ResourceGather", lambda: tf.function(lambda: tf.gather(table, [1, 2]))())
    handle, indices = tool.parameters
    assert handle.source is table.handle
    assert handle.info.shape == (5, 3)
    assert indices is None
    assert tool.is_parameter == [False, False]


def test_the_handle_of_what_is_no_variable_has_none():
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    tool = looked(
        "LookupTableFindV2", lambda: tf.function(lambda: table.lookup(tf.constant(["a"])))()
    )
    assert tool.parameters == [None, None, None]


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("trainable", [True, False])
def test_a_variable_of_a_session(use_resource, trainable):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable(
            "v", (2, 3), use_resource=use_resource, trainable=trainable
        )
        output = tf.nn.relu(variable)
        session.run(variable.initializer)
        tool = looked("Relu", lambda: session.run(output))
    (found,), (then,) = tool.parameters, tool.executed
    assert found.source is (variable.handle if use_resource else variable.op.outputs[0])
    assert (found.info.shape, found.info.dtype) == ((2, 3), "float32")
    assert found.trainable is trainable
    assert then == TensorInfo((2, 3), "float32", 24, "CPU:0")


def test_what_operators_are_there_for():
    found = {}
    tool = amanda.Tool()
    tool.add_inst_for_op(
        lambda ctx: found.setdefault(ctx.driver.purpose(ctx.op), set()).add(ctx.op.name),
        opt_in=True,
    )
    with tf.Graph().as_default(), tf.compat.v1.Session() as session, amanda.apply(tool):
        data = tf.data.Dataset.from_tensors([[1.0, 2.0]]).repeat()
        x = tf.compat.v1.data.make_one_shot_iterator(data).get_next()
        weight = tf.compat.v1.get_variable("weight", (2, 3))
        loss = tf.reduce_sum(tf.nn.relu(tf.matmul(x, weight, name="product")), name="loss")
        train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(train)
    assert found["data"] == {"IteratorGetNext"}
    assert found["optimizer"] == {"GradientDescent/update_weight/ResourceApplyGradientDescent"}
    assert found["initialization"] >= {"weight/Assign", "weight/Initializer/random_uniform"}
    assert all(
        name == "weight/Assign" or "/Initializer/" in name for name in found["initialization"]
    )
    assert {"product", "Relu", "loss"} <= found["model"]


def test_nothing_runs_beside_the_host():
    driver.synchronize("CPU:0")
    assert driver.allocated("CPU:0") is None
