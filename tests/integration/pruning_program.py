"""A Keras model that is trained under each tool that prunes.

Run in a process of its own, on the backend that ``KERAS_BACKEND`` names:
``python pruning_program.py FILE`` writes what it found there.
"""

import sys

import amanda
import keras
import numpy as np
from amanda_tools import pruning
from keras import layers

# Each trains a model of its own.
TOOLS = {
    "magnitude": lambda: [
        pruning.MagnitudePruning(0.6, "filter", budget="global"),
        pruning.ActivationPruning(threshold=0.3),
    ],
    "tiles": lambda: [
        pruning.TileWisePruning(0.5, tile=3, begin=1, end=3),
        pruning.AttentionPruning(threshold=0.05, count=True),
    ],
    "vectors": lambda: [
        pruning.VectorWisePruning(),
        pruning.AttentionPruning(topk=2),
        pruning.ActivationPruning(keep=0.5),
    ],
    "vectors_spelled_out": lambda: [
        pruning.VectorWisePruning(),
        pruning.AttentionPruning(topk=2),
        pruning.ActivationPruning(keep=0.5),
    ],
    "channels": lambda: [pruning.DynamicChannelPruning(0.5, learning_rate=0.01)],
}
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((8, 6, 6, 4)).astype("float32")
Y = RANDOM.standard_normal((8, 2)).astype("float32")


class Attending(layers.Layer):
    """Self-attention, fused or with its probabilities spelled out."""

    def __init__(self, spelled_out, **options):
        super().__init__(**options)
        self.spelled_out = spelled_out
        self.attention = layers.MultiHeadAttention(2, 4, name="attention")

    def build(self, shape):
        self.attention.build(shape, shape)

    def call(self, x):
        if self.spelled_out:
            return self.attention(x, x, return_attention_scores=True)[0]
        return self.attention(x, x)


def built(spelled_out=False):
    data = keras.Input((6, 6, 4))
    x = layers.Conv2D(8, 3, activation="relu", name="first")(data)
    x = layers.Reshape((16, 8), name="tokens")(x)
    x = x + Attending(spelled_out, name="attending")(x)
    x = layers.Flatten(name="flat")(x)
    model = keras.Model(data, layers.Dense(2, name="head")(x), name="net")
    model.compile(keras.optimizers.SGD(0.001, momentum=0.9), "mse")
    random = np.random.default_rng(1)
    model.set_weights([0.3 * random.standard_normal(w.shape) for w in model.get_weights()])
    model.optimizer.build(model.trainable_variables)  # else TensorFlow traces the step twice
    return model


def trained(tools, model):
    """What the model computes after some steps under tools, and what these tell."""
    masks = [tool for tool in tools if isinstance(tool, pruning.WeightPruning)]
    gates = [tool for tool in tools if isinstance(tool, pruning.DynamicChannelPruning)]
    found = {}
    with amanda.apply(*tools):
        if masks:  # what is pruned of all layers together needs all of them
            model.predict_on_batch(X)
        for _ in range(4):
            model.train_on_batch(X, Y)
            for tool in masks:
                tool.step(model)
            for tool in gates:
                tool.step()
        found["output"] = model.predict_on_batch(X)
    found |= {f"weight{i}": weight for i, weight in enumerate(model.get_weights())}
    for tool in masks:
        rows = sorted(tool.rows(), key=lambda row: row.shape)
        found["zeros"] = np.array([row.zeros for row in rows])
        tool.make_permanent(model)
        found["written"] = np.array([(weight == 0).sum() for weight in model.get_weights()])
        with amanda.apply(*(other for other in tools if other is not tool)):
            found["permanent"] = model.predict_on_batch(X)
    for tool in gates:
        found |= dict(zip(("phi", "rho"), tool.gates[0], strict=True))
    for tool in tools:
        if isinstance(tool, (pruning.ActivationPruning, pruning.AttentionPruning)):
            counted = [row for row in tool.rows() if row.elements]
            found["counts"] = np.array([(row.elements, row.zeros) for row in counted])
    return found


def main(file):
    arrays = {}
    for name, tools in TOOLS.items():
        found = trained(tools(), built(name.endswith("spelled_out")))
        arrays |= {f"{name}/{key}": array for key, array in found.items()}
    np.savez(file, **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
