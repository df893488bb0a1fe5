"""What the examples of tools in Keras have in common: handwritten digits, and a model of them."""

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images and classes to learn from, and others to evaluate by: ``x, x_test, y, y_test``."""
    found = load_digits()
    images = found.images[..., np.newaxis].astype(np.float32) / 16
    x, x_test, y, y_test = train_test_split(images, found.target, random_state=0)
    return x, x_test, y, y_test


def network() -> keras.Model:
    """A small convolutional network, which is compiled and not trained; always the same one."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, activation="relu", name="edges"),
            keras.layers.Conv2D(32, 3, activation="relu", name="shapes"),
            keras.layers.Flatten(name="flatten"),
            keras.layers.Dense(10, name="classes"),
        ],
        name="digits",
    )
    model.compile("adam", LOSS, metrics=["accuracy"])
    return model
