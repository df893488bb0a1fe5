"""How often does one flipped bit change which digit a small convolutional network sees?

It runs on the backend of Keras that KERAS_BACKEND names, and finds the same faults on each.
"""

import argparse

import keras
import numpy as np
from amanda_tools import campaign
from rich.console import Console
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--target", default="weights", choices=("weights", "activations"))
    arguments = parser.parse_args()

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
    model.fit(x, y, batch_size=64, epochs=3, verbose=0)
    print(f"accuracy without faults: {model.evaluate(x_test, y_test, verbose=0)[1]:.3f}")

    def predict() -> np.ndarray:
        return model.predict(x_test, batch_size=len(x_test), verbose=0).argmax(1)

    found = campaign(predict, arguments.trials, arguments.target, bits="exponent")
    Console().print(*found.report(), sep="\n")


if __name__ == "__main__":
    main()
