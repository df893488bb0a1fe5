"""The shipped tools on the training of recurrent Keras layers, whose gradients are loops."""

import amanda
import keras
import numpy as np
import pytest
from amanda_tools import Flops, Profile, Trace
from small_keras import recurrent

LAYERS = {
    "stacked": lambda: keras.Sequential(
        [keras.layers.GRU(4, return_sequences=True), keras.layers.LSTM(3)]
    ),
    "both directions": lambda: keras.layers.Bidirectional(keras.layers.SimpleRNN(4)),
    "masked": lambda: keras.Sequential([keras.layers.Masking(), keras.layers.LSTM(4)]),
}


def losses(make, tools=()):
    model = recurrent(make, steps=6)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 6, 3)), rng.normal(size=(8, 1))
    with amanda.apply(*tools):
        return model.fit(x, y, epochs=2, batch_size=4, verbose=0).history["loss"]


@pytest.mark.parametrize("layer", LAYERS)
def test_losses_are_those_of_a_plain_run(layer, tmp_path):
    make = LAYERS[layer]
    tools = Flops(), Profile(), Trace(out=str(tmp_path / "trace.jsonl"))
    np.testing.assert_allclose(losses(make, tools), losses(make), rtol=1e-5)
    assert tools[0].total().backward > 0
