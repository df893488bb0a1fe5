"""A Keras model under the tools about numerics, on the backend that ``KERAS_BACKEND`` names.

Run in a process of its own: ``python keras_numerics_program.py FOLDER`` writes what they found.
"""

import json
import pathlib
import sys

import amanda
import keras
import numpy as np
from amanda_tools import Faults, Kernels, NanWatch, Record, campaign
from keras import layers

FOLDER = pathlib.Path(sys.argv[1])


def model():
    net = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu", name="conv"),
            layers.Flatten(name="flat"),
            layers.Dense(5, name="dense"),
        ],
        name="net",
    )
    rng = np.random.default_rng(0)
    net.set_weights([rng.standard_normal(w.shape).astype("float32") for w in net.get_weights()])
    net.compile(keras.optimizers.SGD(0.01), "mse")
    return net


X = np.random.default_rng(1).standard_normal((3, 8, 8, 1)).astype("float32")


def faults():
    """The faults of one seed in each target."""
    found = {}
    for target in ("weights", "activations", "gradients"):
        net, tool = model(), Faults(target, rate=0.1, bits="exponent", seed=5)
        with amanda.apply(tool):
            if target == "gradients":
                net.train_on_batch(X, np.zeros((3, 5)))
            else:
                net.predict_on_batch(X)
        found[target] = sorted(
            (row.scope, row.type, row.element, row.bit, row.before, row.after)
            for row in tool.rows()
        )
    return found


def trials():
    net = model()
    found = campaign(lambda: net.predict_on_batch(X).argmax(1), 10, "weights", bits=[29, 30])
    return [(row.scope, row.element, row.bit, row.outcome) for row in found.rows()]


def record():
    """Records of a prediction, of one with another weight, and of a training step."""
    for name in ("same", "changed"):
        net = model()
        if name == "changed":
            kernel, bias = net.get_layer("dense").get_weights()
            kernel[3, 2] += 1
            net.get_layer("dense").set_weights([kernel, bias])
        with amanda.apply(Record(FOLDER / f"{name}.npz")):
            net.predict(X, verbose=0)
    net = model()
    with amanda.apply(Record(FOLDER / "step.npz", gradients=True, scopes=["net"])):
        net.train_on_batch(X, np.zeros((3, 5)))


def nonfinite():
    """What is named where a layer divides by zero, and a loss takes the logarithm of it."""
    net = keras.Sequential(
        [keras.Input((4,)), layers.Rescaling(1.0, name="same"), Inverse(name="inverse")], name="net"
    )
    net.compile("sgd", lambda y, p: keras.ops.mean(keras.ops.log(p - p)))
    tool = NanWatch()
    with amanda.apply(tool):
        net.predict(np.zeros((2, 4), "float32"), verbose=0)
    row = tool.first()
    return {"scope": row.scope, "made": row.made, "of": row.of, "source": row.source}


def kernels():
    """How often each layer had its device do something in three steps of training."""
    net, tool = model(), Kernels()
    with amanda.apply(tool):
        net.fit(X, np.zeros((3, 5)), epochs=3, verbose=0)
    return {f"{row.operator} {row.direction}": row.launches for row in tool.rows()}


class Inverse(layers.Layer):
    def call(self, x):
        return 1.0 / x  # where it goes wrong


if __name__ == "__main__":
    record()
    found = {"faults": faults(), "trials": trials(), "nonfinite": nonfinite()}
    found["kernels"] = kernels()
    (FOLDER / "found.json").write_text(json.dumps(found))
