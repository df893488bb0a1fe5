"""S3 written out by hand: operators with substituted tensors, and what their gradients are."""

import amanda
import numpy as np
import tensorflow as tf

MASK = np.array([[1, 0], [0.5, 2]], np.float32)


@tf.custom_gradient
def masked_matmul(x, w):
    """x @ w with a masked w: dL/dx goes through the masked weight, dL/dw is unmasked."""
    masked = w * MASK

    def gradient(dy):
        return dy @ tf.transpose(masked), tf.transpose(x) @ dy

    return x @ masked, gradient


@tf.custom_gradient
def doubled_tanh(x):
    """2 * tanh(x) + 1 for everybody but its own gradient, which is that of tanh."""
    t = tf.tanh(x)
    return 2 * t + 1, lambda dy: dy * (1 - t * t)


class MaskAndDouble(amanda.Tool):
    """Masks the weight of every MatMul and doubles the result of every Tanh."""

    def __init__(self, pure):
        super().__init__()
        self.pure = pure
        self.runs = 0
        self.add_inst_for_op(self.analyze, ops=["MatMul", "Tanh"])

    def analyze(self, ctx):
        if ctx.op.type == "MatMul":
            ctx.insert_before_op(self.mask, inputs=[1], pure=self.pure)
        else:
            ctx.insert_after_op(self.double, pure=self.pure)

    def mask(self, w):
        self.runs += 1
        return w * MASK

    def double(self, t):
        return 2 * t + 1


def assert_close(actual, expected):
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=2e-6, atol=1e-6)
