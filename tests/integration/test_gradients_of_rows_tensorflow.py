"""Gradients of which TensorFlow has some rows: portable tools see, and change, the whole."""

import amanda
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compat import v1

TABLE = np.arange(40, dtype=np.float32).reshape(10, 4)
IDS = np.array([[1, 2, 3, 1, 1]])
RNG = np.random.default_rng(0)
UP = RNG.standard_normal((1, 5, 4)).astype(np.float32)
WHOLE = np.zeros_like(TABLE)
np.add.at(WHOLE, IDS[0], UP[0])

LOOKUPS = {
    "a gather": lambda table, ids: tf.gather(tf.convert_to_tensor(table), ids),
    "an old gather": lambda table, ids: tf.raw_ops.Gather(
        params=tf.convert_to_tensor(table), indices=ids
    ),
    "of a copy": lambda table, ids: tf.gather(tf.identity(tf.convert_to_tensor(table)), ids),
    "of a part": lambda table, ids: tf.gather(tf.reshape(tf.concat([table], 0), [10, 4]), ids),
}
each_lookup = pytest.mark.parametrize("lookup", LOOKUPS.values(), ids=LOOKUPS)


class OnTables(amanda.Tool):
    """Runs a routine on the gradient of every table, and keeps what an analysis sees of it."""

    def __init__(self, routine, namespace="onnx", ops=("Gather",), pure=False):
        super().__init__(namespace=namespace)
        self.shapes = []

        def analyze(ctx):
            self.shapes.append(tuple(ctx.grad_inputs[0].shape))
            ctx.insert_on_grad_inputs(routine, inputs=[0], pure=pure)

        self.add_inst_for_gradient(analyze, ops=list(ops))


def native(routine):
    return OnTables(routine, None, ["Gather", "GatherV2"])


def gradient_of(lookup, *tools):
    """What a program gets for the gradient of the table, computed in one function."""
    table = tf.Variable(TABLE)

    @tf.function(autograph=False)
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(lookup(table, ids) * UP)
        return tape.gradient(loss, table)

    with amanda.apply(*tools):
        return step(tf.constant(IDS))


def plus_one(gradient):
    return gradient * 2 + 1


@each_lookup
def test_a_portable_tool_sees_the_whole_and_leaves_the_rows(lookup):
    seen = []
    tool = OnTables(lambda gradient: seen.append(gradient.numpy()))
    plain, looked_at = gradient_of(lookup), gradient_of(lookup, tool)
    assert tool.shapes == [(10, 4)]
    np.testing.assert_allclose(seen, [WHOLE], rtol=1e-6)
    assert isinstance(looked_at, tf.IndexedSlices) is isinstance(plain, tf.IndexedSlices)
    if isinstance(plain, tf.IndexedSlices):
        np.testing.assert_array_equal(looked_at.values, plain.values)
        np.testing.assert_array_equal(looked_at.indices, plain.indices)


@each_lookup
@pytest.mark.parametrize("pure", [False, True])
def test_what_it_returns_is_the_gradient_of_all_rows(lookup, pure):
    gradient = gradient_of(lookup, OnTables(plus_one, pure=pure))
    np.testing.assert_allclose(tf.convert_to_tensor(gradient), WHOLE * 2 + 1, rtol=1e-5)


def test_a_native_tool_sees_the_rows():
    seen = []
    gradient_of(LOOKUPS["a gather"], native(lambda rows: seen.append(rows.numpy())))
    np.testing.assert_array_equal(seen, UP)


def test_native_and_portable_tools_see_what_the_other_returned():
    tools = native(lambda rows: rows * 2), OnTables(lambda whole: whole + 1)
    gradient = gradient_of(LOOKUPS["a gather"], *tools, native(lambda rows: rows * 3))
    np.testing.assert_allclose(tf.convert_to_tensor(gradient), (WHOLE * 2 + 1) * 3, rtol=1e-5)


def test_the_gradient_of_a_result_that_is_looked_up_from_is_whole():
    seen = []

    class OnResults(amanda.Tool):
        def __init__(self):
            super().__init__(namespace="onnx")
            self.add_inst_for_gradient(self.analyze, ops=["Sin"])

        def analyze(self, ctx):
            seen.append(tuple(ctx.grad_outputs[0].shape))
            ctx.insert_on_grad_outputs(plus_one)

    gradient = gradient_of(lambda t, ids: tf.gather(tf.sin(t), ids), OnResults())
    assert seen == [(10, 4)]
    np.testing.assert_allclose(gradient, (WHOLE * 2 + 1) * np.cos(TABLE), rtol=1e-5, atol=1e-5)


def test_the_size_may_be_known_only_when_the_graph_runs():
    @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([1, 5], tf.int64)])
    def step(table, ids):
        with tf.GradientTape() as tape:
            tape.watch(table)
            loss = tf.reduce_sum(tf.gather(table, ids) * UP)
        return tape.gradient(loss, table)

    with amanda.apply(OnTables(plus_one)):
        gradient = step(tf.constant(TABLE), tf.constant(IDS))
    np.testing.assert_allclose(tf.convert_to_tensor(gradient), WHOLE * 2 + 1, rtol=1e-5)


def test_a_backward_function_of_its_own_has_the_whole():
    table = tf.Variable(TABLE)
    call = tf.function(lambda ids: tf.reduce_sum(tf.gather(tf.identity(table), ids) * UP))
    with amanda.apply(OnTables(plus_one)):
        with tf.GradientTape() as tape:
            loss = call(tf.constant(IDS))
        gradient = tape.gradient(loss, table)
    np.testing.assert_allclose(tf.convert_to_tensor(gradient), WHOLE * 2 + 1, rtol=1e-5)


@pytest.mark.parametrize("use_resource", [True, False])
def test_the_optimizer_of_a_session_gets_what_it_returns(use_resource):
    with tf.Graph().as_default(), v1.Session() as session:
        table = v1.get_variable("table", initializer=TABLE, use_resource=use_resource)
        found = tf.gather(tf.convert_to_tensor(table), tf.constant(IDS))
        step = v1.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(found * UP))
        session.run(v1.global_variables_initializer())
        with amanda.apply(OnTables(plus_one)):
            session.run(step)
        after = session.run(table)
    np.testing.assert_allclose(after, TABLE - (WHOLE * 2 + 1), rtol=1e-5, atol=1e-5)


def test_a_whole_whose_shape_nobody_tells_is_refused():
    @tf.custom_gradient
    def first_rows(x):
        return x[:2], lambda up: tf.IndexedSlices(up, tf.constant([0, 1]))

    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def step(table):
        with tf.GradientTape() as tape:
            tape.watch(table)
            loss = tf.reduce_sum(first_rows(tf.cast(table, tf.float64)))
        return tape.gradient(loss, table)

    tool = amanda.Tool(namespace="onnx")
    tool.add_inst_for_gradient(lambda ctx: ctx.insert_on_grad_outputs(plus_one), ops=["Cast"])
    with amanda.apply(tool), pytest.raises(amanda.UnsupportedError, match=r"'Cast.*some rows"):
        step(tf.constant(TABLE))


def test_indices_that_two_gradients_have_in_common_stay_those_of_the_other():
    tables = tf.Variable(TABLE), tf.Variable(TABLE)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            joined = tf.concat(tables, 1)
            loss = tf.reduce_sum(tf.gather(joined, IDS) * tf.concat([UP, UP], 2))
        return tape.gradient(loss, tables)

    tool = amanda.Tool(namespace="onnx")
    tool.add_inst_for_gradient(
        lambda ctx: ctx.insert_on_grad_inputs(plus_one, inputs=[0]), ops=["Concat"]
    )
    with amanda.apply(tool):
        first, second = map(tf.convert_to_tensor, step())
    np.testing.assert_allclose(first, WHOLE * 2 + 1, rtol=1e-5)
    np.testing.assert_allclose(second, WHOLE, rtol=1e-5)
