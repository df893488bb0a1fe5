"""Keras models under portable tools, on the backend that ``KERAS_BACKEND`` names.

Run in a process of its own: ``python keras_program.py FOLDER`` writes all that it found, for each
model in a folder of its name.
"""

import json
import pathlib
import sys

import amanda
import keras
import numpy as np
import portable_tools as tools
from amanda_tools.quantization import Quantize
from keras import layers
from small_keras import mobilenet, transformer

BACKEND = keras.backend.backend()
ACTIVATIONS = ["Conv", "Gemm", "MatMul", "Softmax", "Clip", "Relu", "ReduceMean"]


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

    @tf.function
    def computed(model, x):
        return model(x, training=False)

    def predict(model, x):
        return computed(model, tf.constant(x))

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


def predict_under(model, x, *applied):
    with amanda.apply(*applied):
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


def look(build, folder):
    """Write what tools find in a model."""
    model, x = build()
    set_weights(model)
    y = np.random.default_rng(2).random((len(x), 10)).astype(np.float32)

    dynamic = Quantize(8, "dynamic")
    trace, activations, flops = tools.Trace(), tools.Activations(ACTIVATIONS), tools.Flops()
    arrays = {
        # First: these make layers be noted.
        "looked at": predict_under(model, x, trace, activations, flops),
        "plain": tools.array(predict(model, x)),
        "pruned": predict_under(model, x, tools.Prune()),
        "quantized": predict_under(model, x, tools.QuantizeWeights()),
        "rounded": predict_under(model, x, Quantize(4)),
        "rounded activations": predict_under(model, x, dynamic),
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
        "rounded": [(row.type, row.scope, row.input, row.kind) for row in dynamic.rows()],
        "trace": trace.rows,
        "flops": flops.total,
        "activations": [where for *where, _ in activations.found],
    }
    (folder / "rows.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    keras.config.set_image_data_format("channels_last")
    for name, build in MODELS.items():
        folder = pathlib.Path(sys.argv[1], name)
        folder.mkdir()
        look(build, folder)
