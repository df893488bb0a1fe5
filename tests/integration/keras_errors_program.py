"""Errors of tools in a Keras model, on the backend that ``KERAS_BACKEND`` names.

Run in a process of its own: ``python keras_errors_program.py FILE`` writes, for each error and each
way to run the model, the types of what reached the program and of its cause, and the message.
"""

import json
import pathlib
import sys

import amanda
import keras
import numpy as np

X, Y = np.ones((2, 4), np.float32), np.ones((2, 3), np.float32)


class Failing(amanda.Tool):
    """A tool that fails at a fully connected layer, in one way."""

    def __init__(self, way):
        super().__init__(namespace="onnx")
        self.way = way
        self.add_inst_for_op(self.analyze, ops=["Gemm"])

    def analyze(self, ctx):
        if self.way == "analysis":
            self.fail()
        elif self.way == "action":
            ctx.insert_after_op(self.fail, outputs=["none"])
        else:
            ctx.insert_after_op(self.fail)

    def fail(self, *tensors):
        raise KeyError("lost")


def dense():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="d")], name="net")


def nested():
    return keras.Sequential([keras.Input((4,)), dense()], name="outer")


def ways_to_run(model):
    model.compile("sgd", "mse")
    yield "predict", lambda: model.predict(X, verbose=0)
    yield "fit", lambda: model.fit(X, Y, verbose=0)
    if keras.backend.backend() == "torch":  # a call by itself is eager on TensorFlow
        yield "call", lambda: model(X)


def found():
    for make in (dense, nested):
        for way in ("analysis", "routine", "action"):
            for name, run in ways_to_run(make()):
                error = None
                try:
                    with amanda.apply(Failing(way)):
                        run()
                except Exception as caught:
                    error = caught
                cause = getattr(error, "__cause__", None)
                kinds = [type(error).__name__, type(cause).__name__, str(error)]
                yield f"{make.__name__} {way} {name}", kinds


def the_programs_own():
    """What an error of the program's own layer is without tools, and beside one that looks."""

    class Wrong(keras.layers.Layer):
        def call(self, x):
            raise ValueError("mine")

        def compute_output_shape(self, shape):
            return shape

    for tools in ((), (Failing("routine"),)):
        try:
            with amanda.apply(*tools):
                Wrong()(X)
        except Exception as error:
            yield [type(error).__name__, str(error)]


pathlib.Path(sys.argv[1]).write_text(
    json.dumps({"tools": dict(found()), "own": list(the_programs_own())})
)
