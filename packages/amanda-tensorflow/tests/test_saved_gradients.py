"""A loaded SavedModel has gradients that nobody noted: what names cannot tell is said."""

import re
import warnings

import amanda
import pytest
import tensorflow as tf
from amanda.testing.probes import Count


def loaded(path, function):
    """A training step that was saved, as it comes back."""
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([2])])
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x)

    module.step = step
    tf.saved_model.save(module, path)
    return tf.saved_model.load(path)


def warned(module):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with amanda.apply(Count("Sin")):
                module.step(tf.ones([2]))
    return [str(w.message) for w in caught if "cannot be told apart" in str(w.message)]


def test_two_operators_that_read_the_same_are_warned_about_once(tmp_path):
    (message,) = warned(loaded(tmp_path, lambda x: tf.sin(x) + tf.sin(x)))
    assert "Sin, Sin_1 cannot be told apart" in message
    assert "import amanda_tensorflow before" in message


@pytest.mark.parametrize("apart", [tf.name_scope("one"), None], ids=["scopes", "alone"])
def test_nothing_is_said_where_names_tell(tmp_path, apart):
    def function(x):
        if apart is None:
            return tf.sin(x)
        with apart:
            y = tf.sin(x)
        return y + tf.sin(x)

    assert not warned(loaded(tmp_path, function))


def scanned(x):
    return tf.scan(lambda y, row: tf.sin(tf.squeeze(y, 0))[None] * row, x, tf.ones([1]))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, tf.sin(y) + y), [0, x])[1],
        scanned,
    ],
    ids=["loop", "shapes_told_by_the_loop"],
)
def test_nothing_is_said_to_be_unseen_in_a_graph_that_was_noted(function):
    tool, whole = amanda.Tool(), amanda.Tool()
    tool.add_inst_for_op(lambda ctx: None, backward=True)
    whole.add_inst_for_gradient(lambda ctx: None)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x)

    with warnings.catch_warnings():
        warnings.simplefilter("error", amanda.AmandaWarning)
        with amanda.apply(tool, whole):
            step(tf.ones([2]))


def test_gradients_of_a_loaded_loop_are_said_to_be_unseen(tmp_path):
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: None, backward=True)
    module = loaded(
        tmp_path,
        lambda x: tf.while_loop(lambda y: True, lambda y: [tf.sin(y)], [x], maximum_iterations=2)[
            0
        ],
    )
    with pytest.warns(amanda.AmandaWarning, match="do not see .*loaded"), amanda.apply(tool):
        module.step(tf.ones([2]))


def by_a_tape(y_of, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = y_of(x)
    return tape.gradient(y, x)


@pytest.mark.parametrize(
    ("gradient", "y_of", "said"),
    [
        (lambda y_of, x: tf.gradients(y_of(x), x)[0], lambda x: x * x, r"do not see .* \(Mul\)"),
        (by_a_tape, lambda x: x * x, r"do not see .* \(Mul\)"),
        (by_a_tape, lambda x: tf.sin(x) + tf.sin(x), "gradients .* belong to, and Sin, Sin_1"),
    ],
)
def test_those_of_an_imported_graph_too(gradient, y_of, said):
    with tf.Graph().as_default() as built:
        fetched = gradient(y_of, tf.constant([1.0, 2.0]))
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(built.as_graph_def(), name="")
    tool, whole = amanda.Tool(), amanda.Tool()
    tool.add_inst_for_op(lambda ctx: None, backward=True)
    whole.add_inst_for_gradient(lambda ctx: None)
    session = tf.compat.v1.Session(graph=graph)
    with pytest.warns(amanda.AmandaWarning) as caught, amanda.apply(tool, whole):
        session.run(fetched.name)
    (message,) = (str(w.message) for w in caught if re.search(said, str(w.message)))
    assert "in 'the graph of a session'" in message
