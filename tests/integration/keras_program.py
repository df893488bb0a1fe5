"""A Keras model under portable tools, on the backend that ``KERAS_BACKEND`` names.

Run in a process of its own: ``python keras_program.py MODEL FOLDER`` writes all that it found.
"""

import json
import pathlib
import sys

import amanda
import keras
import numpy as np
import portable_tools as tools
from keras import layers, ops

BACKEND = keras.backend.backend()
ACTIVATIONS = ["Conv", "Gemm", "MatMul", "Softmax", "Clip", "Relu", "ReduceMean"]


class Block(layers.Layer):
    """A layer of a transformer."""

    def __init__(self, size, heads, **options):
        super().__init__(**options)
        self.heads = heads
        self.norm = layers.LayerNormalization(name="norm")
        self.query = layers.Dense(size, name="query")
        self.key = layers.Dense(size, name="key")
        self.value = layers.Dense(size, name="value")
        self.output_ = layers.Dense(size, name="output")
        self.norm_after = layers.LayerNormalization(name="norm_after")
        self.up = layers.Dense(4 * size, activation="relu", name="up")
        self.down = layers.Dense(size, name="down")

    def call(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down(self.up(self.norm_after(x)))

    def attention(self, x):
        query, key, value = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        found = ops.matmul(ops.softmax(scores / query.shape[-1] ** 0.5), value)
        found = ops.transpose(found, (0, 2, 1, 3))
        return self.output_(ops.reshape(found, (-1, *x.shape[1:])))

    def split(self, x):
        shape = (-1, x.shape[1], self.heads, x.shape[2] // self.heads)
        return ops.transpose(ops.reshape(x, shape), (0, 2, 1, 3))


def transformer():
    tokens = keras.Input((12,), dtype="int32")
    x = layers.Embedding(50, 16, name="embed")(tokens)
    for i in range(2):
        x = Block(16, 2, name=f"block{i}")(x)
    x = layers.GlobalAveragePooling1D(name="pool")(x)
    model = keras.Model(tokens, layers.Dense(10, activation="softmax", name="head")(x), name="net")
    return model, np.random.default_rng(1).integers(0, 50, (3, 12)).astype(np.int32)


def mobilenet():
    model = keras.applications.MobileNetV2((32, 32, 3), alpha=0.35, weights=None, classes=10)
    return model, np.random.default_rng(1).standard_normal((3, 32, 32, 3)).astype(np.float32)


MODELS = {"transformer": transformer, "mobilenet": mobilenet}


def set_weights(model):
    """The same weights on every backend, of the size that keeps activations in bounds."""
    rng = np.random.default_rng(0)
    for variable in model.variables:
        fan_in = np.prod(variable.shape[:-1]) if len(variable.shape) > 1 else 100
        value = rng.standard_normal(variable.shape) * (2 / fan_in) ** 0.5
        if variable.path.endswith(("gamma", "variance")):
            value = 1 + np.abs(value)
        variable.assign(value)


# A step of training leaves the statistics of normalizations as they are: those of batches of three
# differ between the frameworks by more than what is compared here.

if BACKEND == "torch":
    import torch

    def predict(model, x):
        return model(torch.as_tensor(x), training=False)

    def train(model, x, y):
        loss = ((model(torch.as_tensor(x), training=False) - torch.as_tensor(y)) ** 2).mean()
        model.zero_grad()
        loss.backward()
        return {v.path: v.value.grad.numpy() for v in model.trainable_variables}
else:
    import tensorflow as tf

    def predict(model, x):
        return tf.function(lambda x: model(x, training=False))(tf.constant(x))

    def train(model, x, y):
        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=False) - y) ** 2)
            variables = [v.value for v in model.trainable_variables]
            return [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]

        gradients = step(tf.constant(x), tf.constant(y))
        paths = [v.path for v in model.trainable_variables]
        return {path: g.numpy() for path, g in zip(paths, gradients, strict=True)}


def predict_under(tool, model, x):
    with amanda.apply(tool):
        result = predict(model, x)
    return tools.array(result)


def fit(model, x, y):
    """A step of Keras' own training, with masked weights."""
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.trainable = False
    model.compile(keras.optimizers.SGD(1.0), "mse")
    with amanda.apply(tools.Prune()):
        model.fit(x, y, batch_size=len(x), epochs=1, verbose=0)


def main(name, folder):
    keras.config.set_image_data_format("channels_last")
    model, x = MODELS[name]()
    set_weights(model)
    y = np.random.default_rng(2).random((len(x), 10)).astype(np.float32)

    trace, activations, flops = tools.Trace(), tools.Activations(ACTIVATIONS), tools.Flops()
    arrays = {
        "plain": tools.array(predict(model, x)),
        "traced": predict_under(trace, model, x),
        "captured": predict_under(activations, model, x),
        "counted": predict_under(flops, model, x),
        "pruned": predict_under(tools.Prune(), model, x),
        "quantized": predict_under(tools.QuantizeWeights(), model, x),
    }
    arrays |= {f"activation/{i}": found for i, (*_, found) in enumerate(activations.found)}
    gradients = tools.WeightGradients()
    with amanda.apply(tools.Prune(), gradients):
        trained = train(model, x, y)
    arrays |= {f"gradient/{path}": found for path, found in trained.items()}
    arrays |= {f"by role/{scope}": found for scope, found in gradients.found.items()}
    arrays |= {f"start/{v.path}": v.numpy().copy() for v in model.trainable_variables}
    fit(model, x, y)
    arrays |= {f"fitted/{v.path}": v.numpy() for v in model.trainable_variables}

    np.savez(folder / "arrays.npz", **arrays)
    rows = {
        "trace": trace.rows,
        "flops": flops.total,
        "activations": [where for *where, _ in activations.found],
    }
    (folder / "rows.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
