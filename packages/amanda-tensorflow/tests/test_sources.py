"""Where in the program's code a node was made."""

import linecache

import amanda
import pytest
import tensorflow as tf
from amanda.testing.probes import Watch, fail
from tensorflow.compat import v1


def lines(run, ops="Relu", **options):
    """The lines of the operators that run, as text."""
    found = []

    def analyze(ctx):
        source = ctx.op.source
        found.append(source and linecache.getline(*source).strip())

    with amanda.apply(Watch(analyze, ops, **options)):
        run()
    return found


def inner(x):
    return tf.nn.relu(x)  # within another function


X = tf.constant([1.0, -2.0])


def test_it_is_the_line_that_made_the_node():
    @tf.function
    def run(x):
        x = tf.nn.relu(x)
        return tf.function(inner)(x)

    assert lines(lambda: run(X)) == [
        "x = tf.nn.relu(x)",
        "return tf.nn.relu(x)  # within another function",
    ]


def test_of_what_autograph_made_it_is_the_line_of_the_program():
    @tf.function
    def run(x):
        for _ in tf.range(2):
            if tf.reduce_sum(x) > 0:
                x = tf.nn.relu(x)  # in a branch
                x = -x
        return x

    assert lines(lambda: run(-X)) == ["x = tf.nn.relu(x)  # in a branch"]


def test_a_gradient_has_that_of_its_operator():
    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.nn.relu(x)
        return tape.gradient(y, x)

    assert lines(lambda: run(X), gradient=True) == ["y = tf.nn.relu(x)"]
    assert lines(lambda: run(X), backward=True) == ["y = tf.nn.relu(x)"]


def test_in_a_session():
    with tf.Graph().as_default(), v1.Session() as session:
        y = tf.nn.relu(tf.constant(X.numpy()))  # in a graph
        assert lines(lambda: session.run(y)) == [
            "y = tf.nn.relu(tf.constant(X.numpy()))  # in a graph"
        ]


def test_of_a_layer_of_keras_it_is_the_line_that_calls_the_model():
    class Model(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = tf.keras.layers.Dense(2, activation="relu")

        def call(self, x):
            return self.dense(x)  # a layer

    model = Model()
    assert lines(lambda: model.predict(X[None], verbose=0)) == ["return self.dense(x)  # a layer"]


def test_of_a_loaded_model_nobody_can_tell(tmp_path):
    module = tf.Module()
    module.run = tf.function(inner, input_signature=[tf.TensorSpec([2])])
    tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    assert lines(lambda: loaded.run(X)) == [None]
    with tf.Graph().as_default() as graph, v1.Session() as session:
        v1.import_graph_def(module.run.get_concrete_function().graph.as_graph_def(), name="")
        (relu,) = [o for o in graph.get_operations() if o.type == "Relu"]
        assert lines(lambda: session.run(relu.outputs[0], {relu.inputs[0]: [1.0, 2.0]})) == [None]


def test_errors_name_it():
    run = tf.function(inner)
    with pytest.raises(amanda.RoutineError) as caught, amanda.apply(fail("Relu", KeyError())):
        run(X)
    assert linecache.getline(*caught.value.source).startswith("    return tf.nn.relu(x)")
    assert f"' ({__file__}:{caught.value.source.line}): KeyError" in str(caught.value)


def test_what_is_not_supported_names_it():
    tool = Watch(lambda ctx: ctx.insert_before_op(tf.abs, differentiable=True), "Relu")
    said = rf"\({__file__}:\d+\) cannot be diff"
    with pytest.raises(amanda.UnsupportedError, match=said), amanda.apply(tool):
        tf.function(inner)(X)
