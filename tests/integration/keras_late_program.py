"""Weights that layers of Keras got after the model was built, rounded for good.

It prints how far what the model then predicts is from what it did under the tool.
"""

import amanda
import keras
import numpy as np
from amanda_tools.quantization import Quantize
from keras import layers

net = keras.Sequential([keras.Input((3,)), layers.Dense(4, name="dense")], name="net")
net.get_layer("dense").enable_lora(2)
for variable in net.variables:
    variable.assign(np.linspace(-1, 1, int(np.prod(variable.shape))).reshape(variable.shape))
x, tool = np.ones((2, 3), "float32"), Quantize(2)
with amanda.apply(tool):
    rounded = net.predict(x, verbose=0)
tool.make_permanent(net)
print(np.abs(net.predict(x, verbose=0) - rounded).max())
