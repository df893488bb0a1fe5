"""Portable tools that need the forward side: a clipped estimator, LSQ, and the gate of FBS."""

import amanda
import numpy as np


class ClippedBinary(amanda.Tool):
    """Weights are their signs; a gradient passes where a weight is not larger than one."""

    def __init__(self, pure):
        super().__init__(namespace="onnx")
        self._pure = pure
        self.add_inst_for_op(self.binarize, ops=["Conv"])
        self.add_inst_for_gradient(self.clip, ops=["Conv"])

    def binarize(self, ctx):
        xp = ctx.xp
        ctx.insert_before_op(lambda w: xp.sign(w), inputs=["W"], pure=self._pure)

    def clip(self, ctx):
        xp = ctx.xp

        def clipped(grad, w):
            return xp.where(xp.abs(w) > 1, grad * 0, grad)

        ctx.insert_on_grad_inputs(clipped, inputs=["W"], with_given=["W"], pure=self._pure)


class LearnedStep(amanda.Tool):
    """LSQ (Esser et al., ICLR 2020): weights of some bits, whose step size has a gradient."""

    def __init__(self, step, bits, pure=False):
        super().__init__(namespace="onnx")
        self.lowest, self.highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        self.step = step
        self.gradients = []
        self._pure = pure
        self.add_inst_for_op(self.quantize, ops=["Conv"])
        self.add_inst_for_gradient(self.differentiate, ops=["Conv"])

    def quantize(self, ctx):
        xp, step = ctx.xp, self.step

        def quantized(w):
            return xp.round(xp.clip(w / step, self.lowest, self.highest)) * step

        ctx.insert_before_op(quantized, inputs=["W"], pure=self._pure)

    def differentiate(self, ctx):
        xp, step = ctx.xp, self.step

        def differentiated(grad, quantized, w):
            v = w / step
            inside = xp.abs(xp.clip(v, self.lowest, self.highest) - v) == 0
            of_step = quantized / step - xp.where(inside, v, v * 0)
            self.gradients.append(float(xp.sum(grad * of_step)))
            return xp.where(inside, grad, grad * 0)

        ctx.insert_on_grad_inputs(differentiated, inputs=["W"], with_inputs=["W"], with_given=["W"])


class ChannelGate(amanda.Tool):
    """FBS (Gao et al., ICLR 2019): the input's channels say how much of each output channel stays.

    Args:
        phi: (channels of the input, channels of the output).
    """

    def __init__(self, phi, pure):
        super().__init__(namespace="onnx")
        self.phi = phi
        self._pure = pure
        self.add_inst_for_op(self.insert, ops=["Conv"])
        self.add_inst_for_gradient(self.insert_on_gradient, ops=["Conv"])

    def gated(self, ctx):
        xp, phi = ctx.xp, ctx.variable("phi", self.phi)

        def gated(y, x):
            saliency = xp.matmul(xp.mean(xp.abs(x), axis=(2, 3)), phi)
            largest = xp.max(saliency, axis=1, keepdims=True)
            gate = xp.where(saliency * 2 > largest, saliency, saliency * 0)
            return y * gate[:, :, None, None]

        return gated

    def insert(self, ctx):
        ctx.insert_after_op(self.gated(ctx), outputs=[0], with_inputs=["X"], pure=self._pure)

    def insert_on_gradient(self, ctx):
        ctx.insert_on_grad_outputs(self.gated(ctx), outputs=[0], with_inputs=["X"], pure=self._pure)


class Doubling(amanda.Tool):
    """Convolutions run on twice the weight, by themselves."""

    def __init__(self, pure):
        super().__init__(namespace="onnx")
        self._pure = pure
        self.add_inst_for_op(self.analyze, ops=["Conv"])

    def analyze(self, ctx):
        def doubled(original, w):
            assert tuple(w.shape) == (4, 3, 3, 3)
            y = original(w * 2)
            assert y.shape[1] == 4
            return y + 1

        ctx.replace_op(doubled, inputs=["W"], original=True, pure=self._pure)


class Around(amanda.Tool):
    """Operators give twice what they give, and their input; their gradient is both."""

    def __init__(self, type, pure):
        super().__init__(namespace="onnx")
        self._pure = pure
        self.add_inst_for_op(self.around, ops=[type])
        self.add_inst_for_gradient(self.on_gradient, ops=[type])

    def around(self, ctx):
        def twice(original, x):
            return original(x) * 2

        def and_input(y, x):
            return y + x

        ctx.replace_op(twice, inputs=["X"], original=True, pure=self._pure)
        ctx.insert_after_op(and_input, outputs=[0], with_inputs=["X"], pure=self._pure)

    def on_gradient(self, ctx):
        def both(grad, x, y):
            return grad * 0 + x + y

        ctx.insert_on_grad_inputs(
            both, inputs=["X"], with_inputs=["X"], with_outputs=[0], pure=self._pure
        )


RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((2, 3, 5, 5)).astype(np.float32)
W = RANDOM.standard_normal((4, 3, 3, 3)).astype(np.float32)  # OIHW
PHI = RANDOM.random((3, 4)).astype(np.float32)
