"""Functions of tf.data pipelines are not instrumented, and that is said once in each scope."""

import contextlib
import warnings

import amanda
import keras
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Count
from tensorflow.compat import v1

X = np.ones((4, 2, 2), np.float32)


def product(x):
    return tf.matmul(x, x)


def data():
    return tf.data.Dataset.from_tensor_slices(X)


def in_a_loop():
    assert len(list(data().map(product).batch(2))) == 2


def in_a_nested_function():
    nested = tf.function(lambda x: tf.cond(x[0, 0] > 0.0, lambda: product(x), lambda: x))
    for _ in data().map(lambda x: nested(x)).prefetch(1):
        pass


def reducing():
    data().reduce(tf.zeros([2, 2]), lambda total, x: total + product(x))


def before_a_reduction():
    data().map(product).reduce(tf.zeros([2, 2]), lambda total, x: total + x)


@tf.function
def looping(dataset):
    total = tf.zeros([2, 2])
    for x in dataset:
        total += product(x)
    return total


def in_a_session():
    with tf.Graph().as_default(), v1.Session() as session:
        iterator = v1.data.make_initializable_iterator(data().map(product))
        session.run(iterator.initializer)
        session.run(iterator.get_next())


def by_a_one_shot_iterator():
    with tf.Graph().as_default(), v1.Session() as session:
        session.run(v1.data.make_one_shot_iterator(data().map(product)).get_next())


def by_a_layer():
    assert len(list(data().map(keras.layers.Dense(2, use_bias=False)))) == 4


PROGRAMS = {
    "loop": in_a_loop,
    "nested": in_a_nested_function,
    "reduce": reducing,
    "before reduce": before_a_reduction,
    "loop in a function": lambda: looping(data()),
    "session": in_a_session,
    "one shot": by_a_one_shot_iterator,
    "layer": by_a_layer,
}


@contextlib.contextmanager
def said(times):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    ours = [w for w in caught if "in functions that" in str(w.message)]
    assert len(ours) == times, [str(warning.message) for warning in caught]
    for warning in ours:
        assert warning.category is amanda.AmandaWarning
        assert "tools see nothing of MatMul" in str(warning.message)
        assert warning.filename == __file__


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("ops", [None, ["MatMul"]])
def test_it_is_said_once_in_each_scope(program, ops):
    for _ in range(2):
        with said(1), amanda.apply(Count(ops)):
            program()
            program()


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_nothing_is_said_of_types_that_no_tool_wants(program):
    with said(0), amanda.apply(Count("Conv2D")):
        program()


def test_nothing_is_said_of_what_only_arranges_data():
    with said(0), amanda.apply(Count()):
        for _ in data().map(lambda x: tf.cast(x, tf.float64) * 2.0).batch(2):
            pass


def test_nothing_is_said_of_how_keras_takes_batches_out_of_arrays():
    """A tool that wants the lookups of embeddings is not told of those of Keras."""
    with said(0), amanda.apply(Count("GatherV2")):
        keras.Sequential([keras.layers.Flatten()]).predict(X, verbose=0)


def test_it_is_said_of_lookups_by_the_program():
    table = tf.constant(X)
    lookups = tf.data.Dataset.range(4).map(lambda index: tf.gather(table, index))
    told = pytest.warns(amanda.AmandaWarning, match="nothing of GatherV2")
    with told, amanda.apply(Count("GatherV2")):
        list(lookups)


def test_nothing_is_said_without_tools():
    with said(0), amanda.apply(Count()), amanda.disabled():
        in_a_loop()


def test_a_function_that_a_graph_of_version_1_calls_by_its_own_name_is_unseen_too():
    with tf.Graph().as_default() as graph:
        called = tf.function(product, input_signature=[tf.TensorSpec([2, 2])])
        called(v1.placeholder(tf.float32, [2, 2], name="x"))
        definition = graph.as_graph_def()
    (call,) = (node for node in definition.node if node.op == "PartitionedCall")
    call.op = call.attr["f"].func.name
    call.attr.clear()
    with tf.Graph().as_default(), v1.Session() as session:
        (y,) = tf.import_graph_def(definition, {"x": X[0]}, [f"{call.name}:0"])
        count = Count()
        way_out = "nothing of MatMul .* runs; call them in a tf.function"
        with pytest.warns(amanda.AmandaWarning, match=way_out), amanda.apply(count):
            np.testing.assert_array_equal(session.run(tf.tanh(y)), np.tanh(X[0] @ X[0]))
    assert sum(count.counts.values()) > 0
