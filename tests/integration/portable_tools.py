"""Tools written once, in the portable vocabulary, and run on every backend by the tests here."""

import amanda
import numpy as np

LAYERS = ["Conv", "Gemm"]


def array(tensor):
    return (tensor.detach() if hasattr(tensor, "detach") else tensor).numpy().copy()


class Trace(amanda.Tool):
    """Operators in their order, as (type, scope), of those whose first operand is of numbers."""

    def __init__(self):
        super().__init__(namespace="onnx")
        self.rows = []
        self.add_inst_for_op(self.analyze)

    def analyze(self, ctx):
        if ctx.inputs and "float" in str(ctx.inputs[0].dtype):
            self.rows.append((ctx.op.type, ctx.op.scope))


class Activations(amanda.Tool):
    """What operators of some types return, in the order in which they run, with their scopes."""

    def __init__(self, types):
        super().__init__(namespace="onnx")
        self.found = []
        self.add_inst_for_op(self.analyze, ops=types)

    def analyze(self, ctx):
        where = ctx.op.type, ctx.op.scope
        ctx.insert_after_op(lambda *outputs: self.found.append((*where, array(outputs[0]))))


class Flops(amanda.Tool):
    """Multiplications and additions, by type."""

    def __init__(self):
        super().__init__(namespace="onnx")
        self.total = {}
        self.add_inst_for_op(self.analyze, ops=LAYERS, require_outputs=True)

    def analyze(self, ctx):
        # every element of the output is a sum over all of its weights' row
        per_output = np.prod(tuple(ctx.inputs[1].shape)[1:])
        count = 2 * int(np.prod(tuple(ctx.outputs[0].shape)) * per_output)
        self.total[ctx.op.type] = self.total.get(ctx.op.type, 0) + count


class Prune(amanda.Tool):
    """Half of the weights of every output channel are zero, those of the smallest magnitude."""

    def __init__(self):
        super().__init__(namespace="onnx")
        self.add_inst_for_op(self.analyze, ops=LAYERS)

    def analyze(self, ctx):
        if ctx.weight_index is None:
            return
        weight = np.abs(ctx.value(ctx.weight_index))
        rows = weight.reshape(len(weight), -1)
        kept = rows >= np.median(rows, axis=1, keepdims=True)
        mask = ctx.variable("mask", kept.reshape(weight.shape).astype(weight.dtype))
        ctx.insert_before_op(lambda w: w * mask, inputs=[ctx.weight_index])


class QuantizeWeights(amanda.Tool):
    """Weights are rounded to eight bits, with a scale for each output channel."""

    def __init__(self):
        super().__init__(namespace="onnx")
        self.add_inst_for_op(self.analyze, ops=LAYERS)

    def analyze(self, ctx):
        xp = ctx.xp

        def fake_quantize(weight):
            axes = tuple(range(1, len(weight.shape)))
            scale = xp.max(xp.abs(weight), axis=axes, keepdims=True) / 127
            return xp.round(weight / scale) * scale

        if ctx.weight_index is not None:
            ctx.insert_before_op(fake_quantize, inputs=[ctx.weight_index])


class WeightGradients(amanda.Tool):
    """Gradients of the weights of layers, by the scope of the layer."""

    def __init__(self):
        super().__init__(namespace="onnx")
        self.found = {}
        self.add_inst_for_gradient(self.analyze, ops=LAYERS)

    def analyze(self, ctx):
        scope, role = ctx.op.scope, {"Conv": "W", "Gemm": "B"}[ctx.op.type]

        def keep(gradient):
            self.found[scope] = array(gradient)

        ctx.insert_on_grad_inputs(keep, inputs=[role])
