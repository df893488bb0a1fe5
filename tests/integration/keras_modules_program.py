"""Layers as operators, under a tool that notes what it sees and changes a gradient.

Run in a process of its own, on the backend of Keras that ``KERAS_BACKEND`` names:
``python keras_modules_program.py FILE`` writes what it found there.
"""

import json
import pathlib
import sys

import amanda
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


def model():
    given = keras.Input((3,), name="given")
    value = layers.Dense(2, name="value")(given)
    gated = Gate(name="gate")({"value": value, "key": given})
    return keras.Model(given, layers.Dense(2, name="head")(gated["gated"]), name="net")


class Look(amanda.Tool):
    """Notes what each layer is, and halves the gradient of what the gate gives."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.shapes = {}
        self.files = set()
        self.add_inst_for_module(self.analyze)

    def analyze(self, ctx):
        self.seen.append([ctx.op.type, ctx.op.scope.rpartition("/")[2], list(ctx.input_names)])
        self.files.add(ctx.op.source.file)
        ctx.insert_after_op(self.note, layer=ctx.op.scope.rpartition("/")[2])
        if ctx.op.type == "Gate":
            ctx.insert_on_grad_outputs(lambda grad: grad * 0.5, outputs=[0])

    def note(self, *outputs, layer):
        self.shapes[layer] = [list(output.shape) for output in outputs]


net, tool = model(), Look()
net.set_weights(
    [np.linspace(-1, 1, w.size, dtype=w.dtype).reshape(w.shape) for w in net.get_weights()]
)
net.compile("sgd", "mse")
with amanda.apply(tool):
    net.fit(X, Y, batch_size=4, epochs=2, verbose=0)
seen = sorted({json.dumps(each) for each in tool.seen})
weights = [weight.tolist() for weight in net.get_weights()]
found = {"seen": seen, "shapes": tool.shapes, "weights": weights}
found["files"] = [pathlib.Path(file).name for file in tool.files]
pathlib.Path(sys.argv[1]).write_text(json.dumps(found))
