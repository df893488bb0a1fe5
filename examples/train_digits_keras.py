"""Train a small convolutional network on scikit-learn's handwritten digits, with Keras."""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    epochs = parser.parse_args().epochs

    keras.utils.set_random_seed(0)
    digits = load_digits()
    images = digits.images[..., np.newaxis].astype(np.float32) / 16
    x, x_test, y, y_test = train_test_split(images, digits.target, random_state=0)

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
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    model.fit(x, y, batch_size=64, epochs=epochs, verbose=2)
    _, accuracy = model.evaluate(x_test, y_test, verbose=0)
    print(f"accuracy on held-out digits: {accuracy:.3f}")


if __name__ == "__main__":
    main()
