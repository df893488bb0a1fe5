"""How often does one flipped bit change which digit a small convolutional network sees?

It runs on the backend of Keras that KERAS_BACKEND names, and finds the same faults on each.
"""

import argparse

import numpy as np
from amanda_tools import campaign
from amanda_tools.standard_output import print_out
from digits import digits, network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--target", default="weights", choices=("weights", "activations"))
    arguments = parser.parse_args()

    x, x_test, y, y_test = digits()
    model = network()
    model.fit(x, y, batch_size=64, epochs=3, verbose=0)
    print(f"accuracy without faults: {model.evaluate(x_test, y_test, verbose=0)[1]:.3f}")

    def predict() -> np.ndarray:
        scores: np.ndarray = model.predict(x_test, batch_size=len(x_test), verbose=0)
        classes: np.ndarray = scores.argmax(1)
        return classes

    found = campaign(predict, arguments.trials, arguments.target, bits="exponent")
    for part in found.report():
        print_out(part)


if __name__ == "__main__":
    main()
