"""Prune a small convolutional network gradually while it is trained on, and save what is left.

It runs on the backend of Keras that KERAS_BACKEND names. What is saved needs no tool.
"""

import argparse
import tempfile

import amanda
import keras
from amanda_tools.pruning import MagnitudePruning
from amanda_tools.standard_output import print_out
from digits import digits, network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sparsity", type=float, default=0.9)
    parser.add_argument("--out", default=f"{tempfile.gettempdir()}/digits.keras")
    arguments = parser.parse_args()

    x, x_test, y, y_test = digits()
    model = network()

    def accuracy(model: keras.Model) -> float:
        return float(model.evaluate(x_test, y_test, verbose=0)[1])

    # 22 steps an epoch: all weights for five epochs, ever fewer in four, and two to settle
    tool = MagnitudePruning(arguments.sparsity, begin=110, end=198, every=22, budget="global")
    step = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: tool.step(model))
    with amanda.apply(tool):
        model.fit(x, y, batch_size=64, epochs=5, verbose=0, callbacks=[step])
        print(f"accuracy of all weights: {accuracy(model):.3f}")
        model.fit(x, y, batch_size=64, epochs=6, verbose=0, callbacks=[step])
        print(f"accuracy under the tool: {accuracy(model):.3f}")
    print_out(tool.report())

    tool.make_permanent(model)
    model.save(arguments.out)
    print(f"accuracy of what is saved: {accuracy(keras.models.load_model(arguments.out)):.3f}")


if __name__ == "__main__":
    main()
