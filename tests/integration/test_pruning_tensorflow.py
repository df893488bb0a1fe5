"""Pruning by tools of what a TensorFlow session runs, against the same methods by hand."""

import amanda
import amanda_tensorflow  # noqa: F401  # ahead of graphs, whose gradients it then notes
import numpy as np
import pytest
import tensorflow as tf
from amanda_tools import pruning

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((3, 6, 6, 4)).astype("float32")
KERNEL = RANDOM.standard_normal((3, 3, 4, 8)).astype("float32") * 0.3
DENSE = RANDOM.standard_normal((8, 4)).astype("float32")


def as_it_is(tensor):
    return tensor


class Model:
    """A small model in a session.

    Args:
        kernel, dense: what is made of the weights; with a gradient that is that of TensorFlow.
        activation, attention: what is made of activations and of attention probabilities.
        channels: what is made of what the convolution gives, and its input.
    """

    def __init__(
        self,
        kernel=as_it_is,
        dense=as_it_is,
        activation=as_it_is,
        attention=as_it_is,
        channels=lambda y, x: y,
    ):
        graph = tf.Graph()
        with graph.as_default():
            self.x = tf.compat.v1.placeholder(tf.float32, [None, 6, 6, 4])
            self.weights = [
                tf.compat.v1.get_variable(name, initializer=value)
                for name, value in (("kernel", KERNEL), ("dense", DENSE))
            ]
            y = channels(tf.nn.conv2d(self.x, kernel(self.weights[0]), 1, "VALID"), self.x)
            tokens = tf.reshape(activation(tf.nn.relu(y)), (-1, 16, 8))
            scores = tf.matmul(tokens, tokens, transpose_b=True) * 0.2
            mixed = tf.matmul(attention(tf.nn.softmax(scores)), tokens)
            self.y = tf.matmul(tf.reduce_mean(mixed, 1), dense(self.weights[1]))
            self.gradients = tf.gradients(tf.reduce_sum(self.y**2), [*self.weights, self.x])
            self.session = tf.compat.v1.Session(graph=graph)
            self.session.run(tf.compat.v1.global_variables_initializer())
            graph.finalize()

    def run(self):
        return self.session.run([self.y, *self.gradients], {self.x: X})


def masked(mask):
    return lambda weight: weight * mask.astype("float32")


def masks_of(tool):
    """A tool's masks of the model's weights, in TensorFlow's layout."""
    canonical = [KERNEL.transpose(3, 2, 0, 1), DENSE.T]
    kernel, dense = (tool.masks([weight], tool.sparsity)[0] for weight in canonical)
    return masked(kernel.transpose(2, 3, 1, 0)), masked(dense.T)


def largest(values, count):
    return values >= tf.sort(values)[..., -count:][..., :1]


def sharpest(probabilities):
    kept = largest(tf.stop_gradient(probabilities), 3)
    return probabilities * tf.cast(kept, tf.float32)


def strong(activations):
    return activations * tf.cast(tf.stop_gradient(activations) >= 0.5, tf.float32)


def gated(tool):
    def by_hand(y, x):
        phi, rho = tool.gates[0]
        saliency = tf.nn.relu(tf.matmul(tf.reduce_mean(tf.abs(x), (1, 2)), phi) + rho)
        kept = largest(tf.stop_gradient(saliency), 4)
        return y * (saliency * tf.cast(kept, tf.float32))[:, None, None, :]

    return by_hand


WEIGHTS = {
    "magnitude": lambda: pruning.MagnitudePruning(0.5, "row"),
    "tiles": lambda: pruning.TileWisePruning(0.6, tile=3, budget="layer"),
    "vectors": lambda: pruning.VectorWisePruning(),
}


@pytest.mark.parametrize("made", WEIGHTS.values(), ids=WEIGHTS)
def test_weights(made):
    model, tool = Model(), made()
    kernel, dense = masks_of(tool)
    with amanda.apply(tool):
        found = model.run()
    for array, expected in zip(found, Model(kernel, dense).run(), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-5)
    tool.make_permanent(model.session)
    assert model.session.run(model.y, {model.x: X}).tobytes() == found[0].tobytes()
    zeros = [int((weight == 0).sum()) for weight in model.session.run(model.weights)]
    assert zeros == [row.zeros for row in tool.rows()]


def test_masks_are_chosen_anew_between_runs():
    model, tool = Model(), pruning.MagnitudePruning(0.5, begin=1, end=1)
    with amanda.apply(tool):
        assert [row.zeros for row in tool.rows()] == []
        model.run()
        assert [row.zeros for row in tool.rows()] == [0, 0]
        tool.step(model.session)
        found = model.run()
    kernel, dense = masks_of(tool)
    for array, expected in zip(found, Model(kernel, dense).run(), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-5)


def test_values():
    channels = pruning.DynamicChannelPruning(0.5)
    for tool, by_hand in (
        (pruning.ActivationPruning(threshold=0.5), lambda: Model(activation=strong)),
        (pruning.AttentionPruning(topk=3), lambda: Model(attention=sharpest)),
        (channels, lambda: Model(channels=gated(channels))),
    ):
        model = Model()
        with amanda.apply(tool):
            found = model.run()
        for array, expected in zip(found, by_hand().run(), strict=True):
            scale = np.abs(expected).max()
            np.testing.assert_allclose(array / scale, expected / scale, rtol=0, atol=1e-5)


@pytest.mark.parametrize("options", [{"threshold": 2.0}, {"keep": 0.5}])
def test_what_is_no_number_is_not_hidden_by_the_optimizer_of_a_graph(options):
    function = tf.function(tf.nn.relu)
    kept = [0.0, np.nan, 0.0, 3.0] if "threshold" in options else [1.0, np.nan, 0.0, 3.0]
    with amanda.apply(pruning.ActivationPruning(**options)):
        found = function(tf.constant([[1.0, np.nan, -2.0, 3.0]]))
    np.testing.assert_array_equal(found, [kept])


def test_each_part_of_a_weight_has_a_mask_of_its_own_in_every_function():
    parts = tf.Variable([[4.0, 1.0, 1.0, 4.0], [1.0, 4.0, 4.0, 1.0]])
    tool, x = pruning.MagnitudePruning(0.5), tf.constant([[1.0, 10.0]])

    def halves(x):
        first, second = tf.split(parts, 2, axis=1)
        return tf.concat([tf.matmul(x, first), tf.matmul(x, second)], 1)

    one, other = tf.function(halves), tf.function(halves)
    with amanda.apply(tool):
        found = one(x)
        parts.assign(parts * [[1.0], [0.0]])  # of another magnitude when the next one is analyzed
        again = other(x)
    assert found.numpy().tolist() == [[4, 40, 40, 4]]
    assert again.numpy().tolist() == [[4, 0, 0, 4]]
    assert len(tool.rows()) == 2
    tool.make_permanent([parts])
    assert parts.numpy().tolist() == [[4, 0, 0, 4], [0, 0, 0, 0]]


def test_a_table_that_shares_a_weight_is_not_pruned_unnoticed():
    table, tool = tf.Variable(DENSE), pruning.MagnitudePruning(0.5)

    @tf.function
    def scores(ids):
        hidden = tf.reduce_mean(tf.nn.embedding_lookup(table, ids), 1)
        return tf.matmul(hidden, table, transpose_b=True)

    with amanda.apply(tool):
        scores(tf.constant([[0, 1], [2, 3]]))
    with pytest.raises(amanda.UnsupportedError, match="another operator is given it otherwise"):
        tool.make_permanent([table])
    np.testing.assert_array_equal(table, DENSE)


def test_weights_of_a_quantized_model_are_pruned():
    weight = tf.Variable([[3, -1], [-128, 2], [0, 127]], dtype=tf.int8)
    product = tf.function(lambda x: tf.matmul(x, weight, output_type=tf.int32))
    tool, x = pruning.MagnitudePruning(0.5), tf.eye(3, dtype=tf.int8)
    with amanda.apply(tool):
        assert product(x).numpy().tolist() == [[3, 0], [-128, 0], [0, 127]]
    tool.make_permanent([weight])
    assert weight.numpy().tolist() == [[3, 0], [-128, 0], [0, 127]]


def test_a_weight_that_the_model_computes_is_said_to_be_left_alone():
    weight, scale = tf.Variable(DENSE), tf.Variable(2.0)

    @tf.function
    def run(x):
        return tf.matmul(
            tf.matmul(x, x, transpose_b=True), tf.matmul(x, tf.nn.relu(weight) * scale)
        )

    named = r"MagnitudePruning leaves alone MatMul#2: what is given there .* no parameter"
    with (
        pytest.warns(amanda.AmandaWarning, match=named),
        amanda.apply(pruning.MagnitudePruning(0.5)),
    ):
        run(tf.ones((2, len(DENSE))))
