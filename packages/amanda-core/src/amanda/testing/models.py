"""The models that the suite instruments, and plain references for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import amanda
from amanda.testing.adapter import numbers
from amanda.testing.program import Program

if TYPE_CHECKING:
    from amanda.testing.adapter import Adapter, Array, Model

PERCEPTRON = Program("""
    h = hidden/matmul(x, w1)
    a = act/sigmoid(h)
    y = head/matmul(a, w2)
""")
X = numbers(2, 3)
W1 = numbers(3, 4, seed=1)
W2 = numbers(4, 2, seed=2)
# The output is summed up for a gradient, so this is what comes in at the head.
ONES = np.ones((2, 2), np.float32)
# For the weight of the hidden layer.
MASK = np.array([[1, 0, 1, 0]] * 3, np.float32)

# One tensor goes to two operators of a type.
SHARED = Program("""
    a = left/multiply(x, u)
    b = right/multiply(x, v)
    y = join/add(a, b)
""")


def perceptron(adapter: Adapter) -> Model:
    """Two matrix products with a sigmoid between them; its input is ``x``, of the shape of X."""
    return adapter.build(PERCEPTRON, {"w1": W1, "w2": W2})


class OnPerceptron:
    """What the perceptron computes under tools, for classes of the suite."""

    adapter: Adapter

    def output(self, *tools: amanda.Tool) -> Array:
        """Its output with these tools active."""
        model = perceptron(self.adapter)
        with amanda.apply(*tools):
            return model.forward({"x": X})

    def gradients(self, *tools: amanda.Tool) -> dict[str, Array]:
        """Its gradients for x, w1 and w2 with these tools active."""
        model = perceptron(self.adapter)
        with amanda.apply(*tools):
            return model.gradients(["x", "w1", "w2"], {"x": X})


def sigmoid(x: Array) -> Array:
    """The plain reference."""
    return np.asarray(1 / (1 + np.exp(-x)), x.dtype)


class PlainGradients(NamedTuple):
    """The perceptron's gradients, written out by hand."""

    act: Array  # at the sigmoid's input
    x: Array
    w1: Array
    w2: Array


def plain_gradients(w1: Array = W1, a: Array | None = None) -> PlainGradients:
    """With another weight in the hidden layer, or another input ``a`` to the head."""
    own = sigmoid(X @ w1)  # the sigmoid's own output, which its gradient uses
    act = ONES @ W2.T * own * (1 - own)
    return PlainGradients(act, x=act @ w1.T, w1=X.T @ act, w2=(own if a is None else a).T @ ONES)
