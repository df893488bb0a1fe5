"""The suite instruments these models, and compares them with these plain references."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import pytest

import amanda
from amanda.testing.adapter import numbers
from amanda.testing.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

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
    """Build two matrix products with a sigmoid between them; the input is ``x``, shaped as X."""
    return adapter.build(PERCEPTRON, {"w1": W1, "w2": W2})


class Sharing:
    """Classes of the suite whose tests share models, and leave them as they were, inherit this.

    Some frameworks take longer to build a model than to run it under tools.
    """

    adapter: Adapter
    _shared: ClassVar[dict[Hashable, Model]]

    @classmethod
    def setup_class(cls) -> None:
        """Begin with no models, ahead of the tests of a class."""
        cls._shared = {}

    @classmethod
    def teardown_class(cls) -> None:
        """Let go of the models after the tests of a class."""
        del cls._shared

    @pytest.fixture(autouse=True)
    def begin_anew_after_a_failure(self, request: pytest.FixtureRequest) -> Iterator[None]:
        """Let go of the models where a test fails, so that the next ones do not for its sake."""
        failed = request.session.testsfailed
        yield
        if request.session.testsfailed > failed:
            self._shared.clear()

    def shared(self, program: Program, parameters: Mapping[str, Array]) -> Model:
        """Return the model of a program with these parameters that all tests share."""
        return self._kept(program, parameters, lambda: self.adapter.build(program, parameters))

    def shared_nested(self, parameters: Mapping[str, Array]) -> Model:
        """Return the model of nested modules with these parameters that all tests share."""
        return self._kept("nested", parameters, lambda: self.adapter.nested(parameters))

    def _kept(
        self, of: Hashable, parameters: Mapping[str, Array], build: Callable[[], Model]
    ) -> Model:
        values = ((name, value.shape, value.tobytes()) for name, value in parameters.items())
        key = of, *values
        if key not in self._shared:
            self._shared[key] = build()
        return self._shared[key]


class OnPerceptron(Sharing):
    """Classes of the suite that run a perceptron under tools inherit this."""

    def perceptron(self) -> Model:
        """Return the perceptron that all tests share."""
        return self.shared(PERCEPTRON, {"w1": W1, "w2": W2})

    def output(self, *tools: amanda.Tool) -> Array:
        """Return the perceptron's output with these tools active."""
        model = self.perceptron()
        with amanda.apply(*tools):
            return model.forward({"x": X})

    def gradients(self, *tools: amanda.Tool) -> dict[str, Array]:
        """Return the perceptron's gradients for x, w1 and w2 with these tools active."""
        model = self.perceptron()
        with amanda.apply(*tools):
            return model.gradients(["x", "w1", "w2"], {"x": X})


def sigmoid(x: Array) -> Array:
    """Compute a sigmoid in NumPy."""
    return np.asarray(1 / (1 + np.exp(-x)), x.dtype)


class PlainGradients(NamedTuple):
    """These are the perceptron's gradients, written out by hand."""

    act: Array  # at the sigmoid's input
    x: Array
    w1: Array
    w2: Array


def plain_gradients(w1: Array = W1, a: Array | None = None) -> PlainGradients:
    """Compute the perceptron's gradients in NumPy.

    Args:
        w1: the weight in the hidden layer.
        a: what the head is given; the output of the sigmoid by default.
    """
    own = sigmoid(X @ w1)  # the sigmoid's own output, which its gradient uses
    act = ONES @ W2.T * own * (1 - own)
    return PlainGradients(act, x=act @ w1.T, w1=X.T @ act, w2=(own if a is None else a).T @ ONES)
