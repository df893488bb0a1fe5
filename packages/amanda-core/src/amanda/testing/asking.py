"""These tests of S3 have routines ask for tensors of the forward side, and for ``original``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import amanda
from amanda.testing.adapter import assert_close, numbers
from amanda.testing.models import (
    ONES,
    W1,
    W2,
    OnPerceptron,
    X,
    plain_gradients,
    sigmoid,
)
from amanda.testing.probes import InsertAt, host_and_pure
from amanda.testing.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda.testing.adapter import Array

TWICE = Program("""
    h = turn/multiply(x, w)
    y = turn/multiply(h, w)
""")


class ClippedSign(amanda.Tool):
    """This tool binarizes the outputs of operators, with a straight-through estimator.

    The gradient passes straight through where the operator itself gives between -1 and 1.
    """

    def __init__(self, kind: str, where: Callable[[amanda.Operator], bool], pure: bool) -> None:
        super().__init__()
        self._where, self._pure = where, pure
        self.add_inst_for_op(self.binarize, ops=[kind])
        self.add_inst_for_gradient(self.clip, ops=[kind])

    def binarize(self, ctx: amanda.OpContext) -> None:
        """Insert what gives the sign of an operator's output."""
        if self._where(ctx.op):
            xp = ctx.xp
            ctx.insert_after_op(
                lambda h: xp.where(h > 0, h * 0 + 1, h * 0 + -1), outputs=[0], pure=self._pure
            )

    def clip(self, ctx: amanda.OpContext) -> None:
        """Insert what clips the gradient of that output."""
        if self._where(ctx.op):
            xp = ctx.xp
            ctx.insert_on_grad_outputs(
                lambda grad, h: xp.where(xp.abs(h) > 1, grad * 0, grad),
                outputs=[0],
                with_outputs=[0],
                pure=self._pure,
            )


class Asking(OnPerceptron):
    """S3, routines may ask for tensors of the forward side, and for ``original``:
    ``docs/semantics.md#s3-gradients``.
    """

    # Forward

    @host_and_pure
    def test_after_an_operator_come_the_inputs_that_it_saw(self, pure: bool) -> None:
        doubled = InsertAt(
            self.adapter, "insert_before_op", lambda h: h * 2, "sigmoid", inputs=[0], pure=pure
        )
        added = InsertAt(
            self.adapter,
            "insert_after_op",
            lambda a, h, given: a + h + given * 4,
            "sigmoid",
            outputs=[0],
            with_inputs=[0],
            with_given=[0],
            pure=pure,
        )
        h = X @ W1
        assert_close(self.output(doubled, added), (sigmoid(h * 2) + h * 6) @ W2)

    @host_and_pure
    def test_what_is_asked_for_is_not_replaced(self, pure: bool) -> None:
        tool = InsertAt(
            self.adapter,
            "insert_before_op",
            lambda x, w: x + w,
            "multiply",
            inputs=[0],
            with_inputs=[1],
            pure=pure,
        )
        x, w = numbers(2, 3, seed=40), numbers(2, 3, seed=41)
        model = self.adapter.build(Program("y = turn/multiply(x, w)"), {"w": w})
        with amanda.apply(tool):
            np.testing.assert_array_equal(model.forward({"x": x}), (x + w) * w)

    def test_inputs_are_asked_for_by_name_too(self) -> None:
        name = self.adapter.input_names["matmul"][1]
        seen: list[Array] = []
        tool = InsertAt(
            self.adapter,
            "insert_after_op",
            lambda y, w: seen.append(self.adapter.array(w).copy()),
            "matmul",
            "hidden",
            with_inputs=[name],
        )
        self.output(tool)
        np.testing.assert_array_equal(seen, [W1])

    def test_one_that_there_is_not_is_refused(self) -> None:
        def routine(*tensors: Any) -> None:
            pass

        for asked, reason in ((1, "is out of range"), ("none", "is none of")):
            tool = InsertAt(
                self.adapter, "insert_after_op", routine, "sigmoid", with_inputs=[asked]
            )
            with pytest.raises(amanda.ActionError) as caught:
                self.output(tool)
            where = "routine at after_op", self.adapter.types["sigmoid"]
            for part in (f"with_inputs={asked!r} {reason}", "InsertAt", *where):
                assert part in str(caught.value)

    # Gradients

    @host_and_pure
    def test_gradients_of_outputs_come_with_the_forward_side(self, pure: bool) -> None:
        tool = InsertAt(
            self.adapter,
            "insert_on_grad_outputs",
            lambda grad, h, a: grad * h + a,
            "sigmoid",
            with_inputs=[0],
            with_outputs=[0],
            pure=pure,
        )
        h, a = X @ W1, sigmoid(X @ W1)
        assert_close(self.gradients(tool)["w1"], X.T @ ((ONES @ W2.T * h + a) * a * (1 - a)))

    @host_and_pure
    def test_gradients_of_inputs_come_with_the_forward_side(self, pure: bool) -> None:
        tool = InsertAt(
            self.adapter,
            "insert_on_grad_inputs",
            lambda grad, w, x, y: grad * w + y[0][0] * x[0][0],
            "matmul",
            "hidden",
            inputs=[1],
            with_inputs=[1, 0],
            with_outputs=[0],
            pure=pure,
        )
        y, plain = X @ W1, plain_gradients()
        assert_close(self.gradients(tool)["w1"], plain.w1 * W1 + y[0, 0] * X[0, 0])

    @host_and_pure
    def test_they_are_what_the_operators_own_gradient_sees(self, pure: bool) -> None:
        shifted = InsertAt(self.adapter, "insert_before_op", lambda h: h + 1, "sigmoid", pure=pure)
        scaled = InsertAt(self.adapter, "insert_after_op", lambda a: a * 8, "sigmoid", pure=pure)
        tool = InsertAt(
            self.adapter,
            "insert_on_grad_inputs",
            lambda grad, saw, given, gave: saw + given * 2 + gave * 4,
            "sigmoid",
            with_inputs=[0],
            with_given=[0],
            with_outputs=[0],
            pure=pure,
        )
        h = X @ W1
        expected = h + 1 + h * 2 + sigmoid(h + 1) * 4
        assert_close(self.gradients(shifted, scaled, tool)["w1"], X.T @ expected)

    @host_and_pure
    def test_each_call_of_a_layer_has_its_own(self, pure: bool) -> None:
        x, w = numbers(2, 3, seed=42), numbers(2, 3, seed=43)
        model = self.adapter.build(TWICE, {"w": w})
        tool = InsertAt(
            self.adapter,
            "insert_on_grad_inputs",
            lambda grad, x: grad + x,
            "multiply",
            inputs=[0],
            with_inputs=[0],
            pure=pure,
        )
        with amanda.apply(tool):
            for _ in range(2):  # analyzed, and then known
                found = model.gradients(["x"], {"x": x})["x"]
        np.testing.assert_array_equal(found, (w + x * w) * w + x)

    @host_and_pure
    def test_looking_at_them_changes_nothing(self, pure: bool) -> None:
        model = self.perceptron()
        plain = model.gradients(["x", "w1", "w2"], {"x": X})

        def look(*tensors: Any) -> None:
            pass

        tools = [
            InsertAt(
                self.adapter,
                "insert_on_grad_inputs",
                look,
                kind,
                with_inputs=[0],
                with_outputs=[0],
                pure=pure,
            )
            for kind in ("matmul", "sigmoid")
        ]
        with amanda.apply(*tools):
            found = model.gradients(["x", "w1", "w2"], {"x": X})
        for name, gradient in plain.items():
            np.testing.assert_array_equal(found[name], gradient)

    @host_and_pure
    def test_a_straight_through_estimator_is_clipped(self, pure: bool) -> None:
        kind, layer = self.adapter.types["matmul"], self.adapter.layer
        tool = ClippedSign(kind, lambda operator: layer(operator) == "hidden", pure)
        h = X @ W1
        s = sigmoid(np.where(h > 0, np.float32(1), np.float32(-1)))
        assert 0 < (np.abs(h) > 1).sum() < h.size
        found = self.gradients(tool)
        gradient = np.where(np.abs(h) > 1, 0, ONES @ W2.T * s * (1 - s))
        assert_close(found["w1"], X.T @ gradient.astype(np.float32))

    # The original

    @host_and_pure
    def test_a_replacement_may_run_the_operator(self, pure: bool) -> None:
        tool = InsertAt(
            self.adapter,
            "replace_op",
            lambda original, h: original(h) + original(h * 2),
            "sigmoid",
            original=True,
            pure=pure,
        )
        h = X @ W1
        assert_close(self.output(tool), (sigmoid(h) + sigmoid(h * 2)) @ W2)

    @host_and_pure
    def test_it_takes_what_the_routine_is_given(self, pure: bool) -> None:
        tool = InsertAt(
            self.adapter,
            "replace_op",
            lambda original, w: original(w * 2),
            "matmul",
            "hidden",
            inputs=[1],
            original=True,
            pure=pure,
        )
        assert_close(self.output(tool), sigmoid(X @ (W1 * 2)) @ W2)

    @host_and_pure
    def test_the_gradient_stays_that_of_the_operator(self, pure: bool) -> None:
        tool = InsertAt(
            self.adapter,
            "replace_op",
            lambda original, h: original(h) * 2,
            "sigmoid",
            original=True,
            pure=pure,
        )
        found, a = self.gradients(tool), sigmoid(X @ W1)
        plain = plain_gradients(a=a * 2)
        assert_close(found["w2"], plain.w2)
        assert_close(found["w1"], plain.w1)

    @host_and_pure
    def test_it_is_differentiated_if_the_replacement_is(self, pure: bool) -> None:
        tool = InsertAt(
            self.adapter,
            "replace_op",
            lambda original, h: original(h * 2) * 2,
            "sigmoid",
            original=True,
            pure=pure,
            differentiable=True,
        )
        if not (self.adapter.differentiable and (pure or self.adapter.eager)):
            with pytest.raises(amanda.UnsupportedError):
                self.gradients(tool)
            return
        a = sigmoid(X @ W1 * 2)
        found = self.gradients(tool)
        assert_close(found["w2"], (a * 2).T @ ONES)
        assert_close(found["w1"], X.T @ (ONES @ W2.T * 4 * a * (1 - a)))

    def test_no_tool_sees_it(self) -> None:
        ran: list[bool] = []
        tool = InsertAt(
            self.adapter,
            "replace_op",
            lambda original, h: original(original(h)),
            "sigmoid",
            original=True,
        )
        look = InsertAt(self.adapter, "insert_after_op", lambda *_: ran.append(True), "sigmoid")
        assert_close(self.output(tool, look), sigmoid(sigmoid(X @ W1)) @ W2)
        assert ran == [True]

    def test_another_number_of_tensors_is_an_error(self) -> None:
        tool = InsertAt(
            self.adapter, "replace_op", lambda original, h: original(h, h), "sigmoid", original=True
        )
        with pytest.raises(amanda.RoutineError, match="takes 1 tensor here"):
            self.output(tool)
