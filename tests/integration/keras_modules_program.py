"""Layers as operators, under a tool that notes what it sees and changes a gradient.

Keras is imported while the tool is active, as it is in any program that ``amanda run`` runs. Run in
a process of its own, on the backend of Keras that ``KERAS_BACKEND`` names:
``python keras_modules_program.py FILE`` writes what it found there.
"""

import collections
import json
import pathlib
import sys

import amanda


class Look(amanda.Tool):
    """Notes what each layer is, and halves the gradient of what the gate gives."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.shapes = collections.defaultdict(list)
        self.files = set()
        self.add_inst_for_module(self.analyze)

    def analyze(self, ctx):
        self.seen.append([ctx.op.type, ctx.op.scope.rpartition("/")[2], list(ctx.input_names)])
        self.files.add(ctx.op.source.file)
        ctx.insert_after_op(self.note, layer=ctx.op.scope.rpartition("/")[2])
        if ctx.op.type == "Gate":
            ctx.insert_on_grad_outputs(lambda grad: grad * 0.5, outputs=[0])

    def note(self, *outputs, layer):
        shapes = [list(output.shape) for output in outputs]
        if shapes not in self.shapes[layer]:
            self.shapes[layer].append(shapes)


class Negate(amanda.Tool):
    """Negates what normalizations give."""

    def __init__(self):
        super().__init__(namespace="onnx")
        self.add_inst_for_op(self.analyze, ops=["BatchNormalization"])

    def analyze(self, ctx):
        ctx.insert_after_op(lambda y: -y, outputs=[0])


tool = Look()
with amanda.apply(Negate()):
    with amanda.apply(tool):
        import keras_modules_model

        weights = keras_modules_model.trained()
    normalized = keras_modules_model.normalized()
seen = sorted({json.dumps(each) for each in tool.seen})
found = {"seen": seen, "shapes": tool.shapes, "weights": weights, "normalized": normalized}
found["files"] = [pathlib.Path(file).name for file in tool.files]
pathlib.Path(sys.argv[1]).write_text(json.dumps(found))
