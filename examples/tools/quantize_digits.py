"""How many bits does a small convolutional network need to tell handwritten digits apart?

It is trained in single precision, quantized to fewer and fewer bits as it is, and then trained on
with what is lost. It runs on the backend of Keras that KERAS_BACKEND names.
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import amanda
import keras
from amanda_tools.quantization import Quantize, QuantizeAware
from digits import LOSS, digits, network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--bits", type=int, nargs="+", default=[8, 4, 3, 2])
    arguments = parser.parse_args()

    x, x_test, y, y_test = digits()
    model = network()
    model.fit(x, y, batch_size=64, epochs=arguments.epochs, verbose=0)
    trained = model.get_weights()

    def accuracy() -> float:
        return float(model.evaluate(x_test, y_test, verbose=0)[1])

    print(f"single precision: {accuracy():.1%}")
    for bits in arguments.bits:
        model.set_weights(trained)
        tool = Quantize(bits, "mse", activation_bits=bits)
        with amanda.apply(tool):
            model.predict(x[:256], verbose=0)
            tool.freeze()
            quantized = accuracy()
        worst = max(tool.rows(), key=lambda row: row.error or 0)

        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), LOSS, metrics=["accuracy"])
        aware = QuantizeAware(bits, bits)
        with amanda.apply(aware):
            model.fit(x, y, batch_size=64, epochs=max(1, arguments.epochs // 2), verbose=0)
            aware.freeze()
            trained_on = accuracy()
        print(
            f"{bits} bits: {quantized:.1%} as it is, {trained_on:.1%} trained on; rounding changes "
            f"{worst.input} of {worst.scope} most, by {worst.error:.1%}"
        )


if __name__ == "__main__":
    main()
