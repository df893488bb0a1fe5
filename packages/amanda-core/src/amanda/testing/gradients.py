"""These tests of S3 look at what gradients see of routines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import amanda
from amanda.testing.adapter import assert_close, numbers
from amanda.testing.models import (
    MASK,
    ONES,
    SHARED,
    W1,
    W2,
    OnPerceptron,
    X,
    plain_gradients,
    sigmoid,
)
from amanda.testing.probes import InsertAt, host_and_pure
from amanda.testing.program import Program


class Gradients(OnPerceptron):
    """S3, routines are not differentiated unless they ask: ``docs/semantics.md#s3-gradients``."""

    def test_without_tools_they_are_the_references(self) -> None:
        actual, plain = self.gradients(), plain_gradients()
        assert_close(actual["x"], plain.x)
        assert_close(actual["w1"], plain.w1)
        assert_close(actual["w2"], plain.w2)

    @host_and_pure
    def test_a_masked_weight_gives_dx_masked_and_dw_unmasked(self, pure: bool) -> None:
        mask = self.adapter.tensor(MASK)
        actual = self.gradients(
            InsertAt(
                self.adapter,
                "insert_before_op",
                lambda w: w * mask,
                "matmul",
                "hidden",
                inputs=[1],
                pure=pure,
            )
        )
        plain = plain_gradients(w1=W1 * MASK)
        assert_close(actual["x"], plain.act @ (W1 * MASK).T)
        assert_close(actual["w1"], X.T @ plain.act)
        assert_close(actual["w2"], plain.w2)

    @host_and_pure
    def test_the_operators_own_gradient_sees_its_substituted_inputs(self, pure: bool) -> None:
        actual = self.gradients(
            InsertAt(self.adapter, "insert_before_op", lambda h: h + 1, "sigmoid", pure=pure)
        )
        s = sigmoid(X @ W1 + 1)
        assert_close(actual["w1"], X.T @ (ONES @ W2.T * s * (1 - s)))
        assert_close(actual["w2"], s.T @ ONES)

    @host_and_pure
    def test_downstream_gradients_see_the_substituted_output(self, pure: bool) -> None:
        actual = self.gradients(
            InsertAt(self.adapter, "insert_after_op", lambda a: a * 2 + 1, "sigmoid", pure=pure)
        )
        assert_close(actual["w2"], (2 * sigmoid(X @ W1) + 1).T @ ONES)

    @host_and_pure
    def test_an_operators_own_gradient_uses_its_original_output(self, pure: bool) -> None:
        actual = self.gradients(
            InsertAt(self.adapter, "insert_after_op", lambda a: a * 2 + 1, "sigmoid", pure=pure)
        )
        assert_close(actual["w2"], (2 * sigmoid(X @ W1) + 1).T @ ONES)
        assert_close(actual["w1"], plain_gradients().w1)
        assert_close(actual["x"], plain_gradients().x)

    @host_and_pure
    def test_substituted_inputs_and_outputs_together(self, pure: bool) -> None:
        actual = self.gradients(
            InsertAt(self.adapter, "insert_before_op", lambda h: h + 1, "sigmoid", pure=pure),
            InsertAt(self.adapter, "insert_after_op", lambda a: a * 2, "sigmoid", pure=pure),
        )
        s = sigmoid(X @ W1 + 1)
        assert_close(actual["w2"], (2 * s).T @ ONES)
        assert_close(actual["w1"], X.T @ (ONES @ W2.T * s * (1 - s)))

    @host_and_pure
    def test_a_chain_of_substitutes_passes_gradients_through(self, pure: bool) -> None:
        doubling = [
            InsertAt(self.adapter, "insert_before_op", lambda h: h * 2, "sigmoid", pure=pure)
            for _ in range(3)
        ]
        s = sigmoid(X @ W1 * 8)
        assert_close(self.gradients(*doubling)["w1"], X.T @ (ONES @ W2.T * s * (1 - s)))

    @host_and_pure
    def test_both_inputs_of_an_operator_substituted(self, pure: bool) -> None:
        x, z = numbers(2, 3, seed=7), numbers(2, 3, seed=8)
        model = self.adapter.build(Program("y = mix/multiply(x, z)"), {})
        tool = InsertAt(
            self.adapter, "insert_before_op", lambda x, z: (x + 1, z * 2), "multiply", pure=pure
        )
        with amanda.apply(tool):
            actual = model.gradients(["x", "z"], {"x": x, "z": z})
        np.testing.assert_array_equal(actual["x"], z * 2)
        np.testing.assert_array_equal(actual["z"], x + 1)

    @host_and_pure
    def test_one_consumer_of_a_tensor_sees_a_substitute(self, pure: bool) -> None:
        x, u, v = (numbers(2, 3, seed=seed) for seed in (9, 10, 11))
        model = self.adapter.build(SHARED, {"u": u, "v": v})
        tool = InsertAt(
            self.adapter,
            "insert_before_op",
            lambda x: x * 2,
            "multiply",
            "left",
            inputs=[0],
            pure=pure,
        )
        with amanda.apply(tool):
            actual = model.gradients(["x", "u", "v"], {"x": x})
        np.testing.assert_array_equal(actual["x"], u + v)
        np.testing.assert_array_equal(actual["u"], 2 * x)
        np.testing.assert_array_equal(actual["v"], x)

    @host_and_pure
    def test_a_replaced_operator_keeps_its_gradient(self, pure: bool) -> None:
        actual = self.gradients(
            InsertAt(self.adapter, "replace_op", lambda h: h * 2, "sigmoid", pure=pure)
        )
        plain = plain_gradients(a=X @ W1 * 2)
        assert_close(actual["w2"], plain.w2)
        assert_close(actual["w1"], plain.w1)
        assert_close(actual["x"], plain.x)

    @host_and_pure
    def test_a_replaced_operators_gradient_sees_substituted_inputs(self, pure: bool) -> None:
        actual = self.gradients(
            InsertAt(self.adapter, "insert_before_op", lambda h: h + 1, "sigmoid", pure=pure),
            InsertAt(self.adapter, "replace_op", lambda h: h * 2, "sigmoid", pure=pure),
        )
        s = sigmoid(X @ W1 + 1)
        assert_close(actual["w2"], ((X @ W1 + 1) * 2).T @ ONES)
        assert_close(actual["w1"], X.T @ (ONES @ W2.T * s * (1 - s)))

    def test_a_replaced_operator_without_need_of_a_gradient(self) -> None:
        tool = InsertAt(self.adapter, "replace_op", lambda h: h * 2, "sigmoid")
        model = self.perceptron()
        with amanda.apply(tool):
            actual = model.gradients(["w2"], {"x": X})
        assert_close(actual["w2"], (X @ W1 * 2).T @ ONES)

    @host_and_pure
    @pytest.mark.parametrize(
        ("insertion", "routine", "expected"),
        [
            (
                "insert_before_op",
                lambda h: h * 3,
                lambda: (s := sigmoid(X @ W1 * 3)) * (1 - s) * 3,
            ),
            (
                "insert_after_op",
                lambda a: a * 3,
                lambda: (s := sigmoid(X @ W1)) * (1 - s) * 3,
            ),
            ("replace_op", lambda h: h * 3, lambda: np.full((2, 4), 3, np.float32)),
        ],
        ids=["before", "after", "replace"],
    )
    def test_a_differentiable_routine_is_differentiated_or_refused(
        self, insertion: str, routine: Any, expected: Any, pure: bool
    ) -> None:
        ran = []

        def noting(tensor: Any) -> Any:
            ran.append(True)
            return routine(tensor)

        tool = InsertAt(self.adapter, insertion, noting, "sigmoid", pure=pure, differentiable=True)
        if self.adapter.differentiable and (pure or self.adapter.eager):
            derivative = expected()
            assert_close(self.gradients(tool)["w1"], X.T @ (ONES @ W2.T * derivative))
        else:
            with pytest.raises(amanda.UnsupportedError):
                self.gradients(tool)
            assert not ran
