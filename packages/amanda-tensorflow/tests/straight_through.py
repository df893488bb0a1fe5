"""S3 written out by hand: operators with substituted tensors, and what their gradients are."""

import numpy as np
import tensorflow as tf
from amanda.testing.probes import after, before

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


def mask_and_double(pure):
    """Tools that mask the weight of every MatMul and double the result of every Tanh."""
    mask = before("MatMul", lambda w: w * MASK, inputs=[1], pure=pure)
    return mask, after("Tanh", lambda t: 2 * t + 1, pure=pure)


def assert_close(actual, expected):
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=2e-6, atol=1e-6)
