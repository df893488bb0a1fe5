"""Layers of the program's own and a model of them, trained and run on whatever Keras stands on."""

import keras
import numpy as np
from keras import layers

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
Y = np.linspace(1, -1, 8, dtype=np.float32).reshape(4, 2)


@keras.saving.register_keras_serializable()
class Gate(layers.Layer):
    """Splits what it is given in two, of which one opens for the other."""

    def __init__(self, **options):
        super().__init__(**options)
        self.open = layers.Dense(2, activation="sigmoid", name="open")

    def call(self, inputs, scale=1.0):
        value, key = inputs["value"], inputs["key"]
        return {"gated": value * self.open(key) * scale}


def gated():
    given = keras.Input((3,), name="given")
    value = layers.Dense(2, name="value")(given)
    gated = Gate(name="gate")({"value": value, "key": given})
    return keras.Model(given, layers.Dense(2, name="head")(gated["gated"]), name="net")


def trained():
    """The weights of a model after two steps."""
    net = gated()
    net.set_weights(
        [np.linspace(-1, 1, w.size, dtype=w.dtype).reshape(w.shape) for w in net.get_weights()]
    )
    net.compile("sgd", "mse")
    net.fit(X, Y, batch_size=4, epochs=2, verbose=0)
    return [weight.tolist() for weight in net.get_weights()]


def normalized():
    """What a normalization gives, which is several operators on PyTorch and one on TensorFlow."""
    images = np.linspace(-1, 1, 24, dtype=np.float32).reshape(1, 2, 3, 4)
    net = keras.Sequential([layers.BatchNormalization(epsilon=0.5)])
    return net.predict(images, verbose=0).tolist()
