"""These tests look at the values that analysis routines and routines know."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import amanda
from amanda.testing.adapter import assert_close
from amanda.testing.models import MASK, ONES, W1, W2, OnPerceptron, X, sigmoid
from amanda.testing.probes import InsertAt, Watch, host_and_pure

BIG = (abs(W1) > 1).astype(np.float32)


class Values(OnPerceptron):
    """An analysis routine knows the values it can: ``docs/semantics.md#what-a-context-shows``.

    In a backend that stages, the values of parameters may be unknown when tools decide; what they
    need of them they then have to take in routines.
    """

    def test_the_value_of_a_parameter_is_known_unless_it_is_staged(self) -> None:
        def analyze(ctx: amanda.OpContext) -> None:
            expected = W1 if self.adapter.layer(ctx.op) == "hidden" else W2
            for index in (1, -1):
                if not self.adapter.parameters_known:
                    with pytest.raises(amanda.ValueUnavailableError):
                        ctx.value(index)
                    continue
                value = ctx.value(index)
                assert isinstance(value, np.ndarray)
                assert value.dtype == np.float32
                np.testing.assert_array_equal(value, expected)

        tool = Watch(analyze, [self.adapter.types["matmul"]])
        with amanda.apply(tool):
            self.perceptron().forward({"x": X})
        assert tool.analyzed

    def test_the_value_of_an_activation(self) -> None:
        def analyze(ctx: amanda.OpContext) -> None:
            if self.adapter.eager:
                assert_close(ctx.value(0), X @ W1)
            else:
                with pytest.raises(amanda.ValueUnavailableError):
                    ctx.value(0)

        tool = Watch(analyze, [self.adapter.types["sigmoid"]])
        with amanda.apply(tool):
            self.perceptron().forward({"x": X})
        assert tool.analyzed

    def test_a_value_that_is_not_known_is_an_error_that_breaks_nothing(self) -> None:
        unknown = pytest.raises(amanda.ValueUnavailableError)
        expected = contextlib.nullcontext() if self.adapter.eager else unknown
        tool = Watch(lambda ctx: ctx.value(0), [self.adapter.types["sigmoid"]])
        model = self.perceptron()
        with expected, amanda.apply(tool):
            model.forward({"x": X})
        assert len(tool.analyzed) == 1
        assert_close(model.forward({"x": X}), sigmoid(X @ W1) @ W2)

    def test_a_host_routine_is_given_the_value_of_a_parameter(self) -> None:
        seen: list[np.ndarray[Any, Any]] = []
        tool = InsertAt(
            self.adapter,
            "insert_before_op",
            lambda w: seen.append(self.adapter.array(w)),
            "matmul",
            "hidden",
            inputs=[1],
        )
        model = self.perceptron()
        with amanda.apply(tool):
            for _ in range(2):
                model.forward({"x": X})
        assert len(tool.analyzed) == 2
        np.testing.assert_array_equal(seen, [W1, W1])

    def test_a_host_routine_turns_what_it_is_given_into_arrays(self) -> None:
        """It is given activations, parameters and gradients, and has the variables of its tool."""
        seen: list[np.ndarray[Any, Any]] = []

        def analyze(ctx: amanda.OpContext) -> None:
            if self.adapter.layer(ctx.op) == "head":
                offset = ctx.variable("offset", np.float32(3))
                insert = ctx.insert_before_op if ctx.is_forward() else ctx.insert_on_grad_outputs
                insert(lambda *given: seen.extend(map(ctx.numpy, (*given, offset))))

        types = [self.adapter.types["matmul"]]
        model = self.perceptron()
        with amanda.apply(Watch(analyze, types), Watch(analyze, types, gradient=True)):
            model.gradients(["w1", "w2"], {"x": X})
        assert all(type(array) is np.ndarray and array.dtype == np.float32 for array in seen)
        activation, weight, offset, gradient, again = seen
        assert_close(activation, sigmoid(X @ W1))
        np.testing.assert_array_equal(weight, W2)
        np.testing.assert_array_equal(gradient, ONES)
        assert offset == again == 3
        assert offset.shape == ()

    def test_a_tensor_without_a_value_gives_no_array(self) -> None:
        def analyze(ctx: amanda.OpContext) -> None:
            if self.adapter.eager:
                assert_close(ctx.numpy(ctx.inputs[0]), X @ W1)
            else:
                with pytest.raises(amanda.ValueUnavailableError):
                    ctx.numpy(ctx.inputs[0])

        tool = Watch(analyze, [self.adapter.types["sigmoid"]])
        with amanda.apply(tool):
            self.perceptron().forward({"x": X})
        assert tool.analyzed

    @host_and_pure
    def test_a_routine_masks_by_a_value_that_the_analysis_need_not_know(self, pure: bool) -> None:
        def analyze(ctx: amanda.OpContext) -> None:
            xp = ctx.xp
            if self.adapter.layer(ctx.op) == "hidden":
                ctx.insert_before_op(
                    lambda w: xp.where(xp.abs(w) > 1, w, xp.zeros_like(w)), inputs=[1], pure=pure
                )

        model = self.perceptron()
        with amanda.apply(Watch(analyze, [self.adapter.types["matmul"]])):
            found = model.forward({"x": X})
        assert 0 < BIG.sum() < BIG.size
        assert_close(found, sigmoid(X @ (W1 * BIG)) @ W2)

    @host_and_pure
    def test_a_host_routine_finds_a_value_and_another_routine_uses_it(self, pure: bool) -> None:
        """A mask that is made at the first execution is in use from the second one on."""
        made: list[bool] = []

        def make(w: Any, mask: Any) -> None:
            if not made:
                made.append(True)
                mask.assign(abs(self.adapter.array(w)) > 1)

        def analyze(ctx: amanda.OpContext) -> None:
            if self.adapter.layer(ctx.op) == "hidden":
                mask = ctx.variable("mask", np.ones_like(MASK))
                ctx.insert_before_op(lambda w, mask: w * mask, inputs=[1], pure=pure, mask=mask)
                ctx.insert_before_op(make, inputs=[1], mask=mask)

        tool = Watch(analyze, [self.adapter.types["matmul"]])
        model = self.perceptron()
        with amanda.apply(tool):
            assert_close(model.forward({"x": X}), sigmoid(X @ W1) @ W2)
            assert_close(model.forward({"x": X}), sigmoid(X @ (W1 * BIG)) @ W2)
        assert len(tool.analyzed) == 2
