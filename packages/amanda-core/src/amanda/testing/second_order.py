"""These tests of S3 look at what gradients of gradients see of routines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import amanda
from amanda.testing.adapter import assert_close, numbers
from amanda.testing.cases import case
from amanda.testing.models import Sharing, sigmoid
from amanda.testing.probes import INSERTIONS, InsertAt, host_and_pure
from amanda.testing.program import Program

if TYPE_CHECKING:
    from amanda.testing.adapter import Array

# The sum of x**2 * w, whose gradient for x is 2 * x * w.
SQUARE = Program("""
    a = first/multiply(x, x)
    y = second/multiply(a, w)
""")
# The same with x added to the square.
SHIFTED = Program("""
    a = first/multiply(x, x)
    b = shift/add(a, x)
    y = second/multiply(b, w)
""")
# The sigmoid of x, times w.
CURVE = Program("""
    a = act/sigmoid(x)
    y = scale/multiply(a, w)
""")
W = numbers(2, 3, seed=1)
X = numbers(2, 3, seed=2)


class SecondOrder(Sharing):
    """S3 holds for gradients of gradients: ``docs/semantics.md#s3-gradients``."""

    def second(self, *tools: amanda.Tool) -> tuple[Array, Array]:
        """Return the gradients, for x and w, of the gradient for x with these tools active."""
        model = self.shared(SQUARE, {"w": W})
        with amanda.apply(*tools):
            found = model.second_gradients("x", ["x", "w"], {"x": X})
        return found["x"], found["w"]

    def both(self, of: str, tool: amanda.Tool) -> tuple[Array, Array, Array]:
        """Return the gradient for ``of`` and its gradients for x and w with this tool active."""
        model = self.shared(SQUARE, {"w": W})
        with amanda.apply(tool):
            first = model.gradients([of], {"x": X})[of]
            second = model.second_gradients(of, ["x", "w"], {"x": X})
        return first, second["x"], second["w"]

    def test_without_tools_second_derivatives_are_the_references(self) -> None:
        dx, dw = self.second()
        np.testing.assert_array_equal(dx, 2 * W)
        np.testing.assert_array_equal(dw, 2 * X)

    @host_and_pure
    def test_a_tool_that_looks_changes_no_second_derivative(self, pure: bool) -> None:
        looked: list[str] = []

        def look(*tensors: Any, at: str) -> None:
            looked.append(at)

        model = self.shared(CURVE, {"w": W})
        s = sigmoid(X)
        for insertion in INSERTIONS:
            with case(insertion):
                tool = InsertAt(self.adapter, insertion, look, "sigmoid", pure=pure, at=insertion)
                with amanda.apply(tool):
                    found = model.second_gradients("x", ["x", "w"], {"x": X})
                assert insertion in looked
                assert_close(found["x"], W * s * (1 - s) * (1 - 2 * s))
                assert_close(found["w"], s * (1 - s))

    @host_and_pure
    def test_a_masked_weight_gives_them_masked_and_its_own_unmasked(self, pure: bool) -> None:
        mask = np.array([[1, 0, 2]] * 2, np.float32)
        tensor = self.adapter.tensor(mask)
        dx, dw = self.second(
            InsertAt(
                self.adapter,
                "insert_before_op",
                lambda w: w * tensor,
                "multiply",
                "second",
                inputs=[1],
                pure=pure,
            )
        )
        np.testing.assert_array_equal(dx, 2 * W * mask)
        np.testing.assert_array_equal(dw, 2 * X)

    @host_and_pure
    def test_a_substituted_output_passes_them_straight_through(self, pure: bool) -> None:
        """The gradient for w is the substitute of x**2, which has the derivative of x**2."""
        tool = InsertAt(
            self.adapter, "insert_after_op", lambda a: a * 3, "multiply", "first", pure=pure
        )
        first, dx, dw = self.both("w", tool)
        np.testing.assert_array_equal(first, 3 * X * X)
        np.testing.assert_array_equal(dx, 2 * X)
        np.testing.assert_array_equal(dw, np.zeros_like(W))

    @host_and_pure
    @pytest.mark.parametrize("insertion", ["insert_on_grad_inputs", "insert_on_grad_outputs"])
    def test_a_substituted_gradient_passes_them_straight_through(
        self, insertion: str, pure: bool
    ) -> None:
        """What stands for the gradient of the sum, which is w, has the derivative of w."""
        ran: list[bool] = []

        def triple(*gradients: Any) -> Any:
            ran.append(True)
            return [g * 3 for g in gradients]

        tool = InsertAt(self.adapter, insertion, triple, "add", pure=pure)
        model = self.shared(SHIFTED, {"w": W})
        with amanda.apply(tool):
            first = model.gradients(["x"], {"x": X})["x"]
            second = model.second_gradients("x", ["x", "w"], {"x": X})
        np.testing.assert_array_equal(first, 3 * W * (2 * X + 1))
        np.testing.assert_array_equal(second["x"], 3 * W * 2)
        np.testing.assert_array_equal(second["w"], 2 * X + 1)
        assert ran

    @host_and_pure
    @pytest.mark.parametrize("layer", ["first", "second"])
    def test_what_comes_through_an_operators_inputs_is_no_gradient_of_it(
        self, layer: str, pure: bool
    ) -> None:
        """The square sends g * x to each of its inputs, for the g = w that comes in.

        Three times that has the derivative of g * x: 2 * g by x, which the square has saved, and
        2 * x by g. If the second product's gradients are tripled instead, g is 3 * w with the
        derivative of w.
        """
        ran: list[bool] = []

        def triple(*gradients: Any) -> Any:
            ran.append(True)
            return [None if g is None else g * 3 for g in gradients]

        tool = InsertAt(self.adapter, "insert_on_grad_inputs", triple, "multiply", layer, pure=pure)
        first, dx, dw = self.both("x", tool)
        assert_close(first, 3 * 2 * X * W)
        assert_close(dx, 2 * W * (1 if layer == "first" else 3))
        assert_close(dw, 2 * X)
        assert ran

    @host_and_pure
    @pytest.mark.parametrize("layer", ["first", "second"])
    def test_a_substitute_for_what_comes_in_is_differentiated_with_the_operator(
        self, layer: str, pure: bool
    ) -> None:
        """The square makes 2 * x * g of what comes in, which has the derivative 2 * g by x.

        What stands for g = w is g = 3 * w, with the derivative of w. If what comes in at the second
        product is tripled instead, which is 1, then g = 3 * w with the derivative of 3 * w.
        """
        tool = InsertAt(
            self.adapter, "insert_on_grad_outputs", lambda g: g * 3, "multiply", layer, pure=pure
        )
        first, dx, dw = self.both("x", tool)
        assert_close(first, 2 * X * 3 * W)
        assert_close(dx, 2 * 3 * W)
        assert_close(dw, 2 * X * (1 if layer == "first" else 3))

    @host_and_pure
    def test_an_operators_second_derivative_sees_its_substituted_inputs(self, pure: bool) -> None:
        model = self.shared(CURVE, {"w": W})
        tool = InsertAt(self.adapter, "insert_before_op", lambda x: x + 1, "sigmoid", pure=pure)
        with amanda.apply(tool):
            found = model.second_gradients("x", ["x", "w"], {"x": X})
        s = sigmoid(X + 1)
        assert_close(found["x"], W * s * (1 - s) * (1 - 2 * s))
        assert_close(found["w"], s * (1 - s))

    def test_a_differentiable_routine_is_differentiated_twice_or_refused(self) -> None:
        """With the square of x**2 in its place the gradient for x is 4 * x**3 * w."""
        tool = InsertAt(
            self.adapter,
            "insert_after_op",
            lambda a: a * a,
            "multiply",
            "first",
            pure=True,
            differentiable=True,
        )
        if self.adapter.differentiable:
            dx, dw = self.second(tool)
            assert_close(dx, 12 * X**2 * W)
            assert_close(dw, 4 * X**3)
        else:
            with pytest.raises(amanda.UnsupportedError):
                self.second(tool)
