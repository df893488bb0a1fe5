"""These tests of S3 look at what routines see of gradients, and do to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from amanda.testing.probes import Executions, InsertAt, Watch, host_and_pure
from amanda.testing.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda.testing.adapter import Array

HALVES = Program("""
    top, bottom = cut/unstack(x)
    y = join/multiply(top, z)
""")
SELECT = Program("""
    s = choose/select(mask, x, z)
    y = weigh/multiply(s, c)
""")


class Backward(OnPerceptron):
    """S3 holds for an operator's gradient as a whole, and for its backward operators one by one:
    ``docs/semantics.md#s3-gradients``.
    """

    # The gradient of an operator as a whole

    def test_it_lines_up_with_inputs_and_outputs(self) -> None:
        seen: dict[str, list[Array]] = {}

        def note(*gradients: Any, place: str) -> None:
            seen[place] = [self.adapter.array(gradient) for gradient in gradients]

        self.gradients(
            InsertAt(
                self.adapter, "insert_on_grad_outputs", note, "matmul", "hidden", place="outputs"
            ),
            InsertAt(
                self.adapter, "insert_on_grad_inputs", note, "matmul", "hidden", place="inputs"
            ),
        )
        plain = plain_gradients()
        (g,) = seen["outputs"]
        assert_close(g, plain.act)
        dx, dw = seen["inputs"]
        assert_close(dx, plain.x)
        assert_close(dw, plain.w1)

    def test_the_context_counts_them(self) -> None:
        counts: list[tuple[int, int, bool, bool]] = []

        def analyze(ctx: amanda.OpContext) -> None:
            counts.append(
                (
                    len(ctx.grad_outputs),
                    len(ctx.grad_inputs),
                    ctx.is_backward(),
                    ctx.backward_op is None,
                )
            )

        types = [self.adapter.types[kind] for kind in ("matmul", "sigmoid")]
        tool = Watch(analyze, types, gradient=True)
        self.gradients(tool)
        # in the backward pass: head, act, hidden
        assert counts == [(1, 2, True, True), (1, 1, True, True), (1, 2, True, True)]

    @pytest.mark.parametrize(
        ("inputs", "upstream", "weight"),
        [([0], 8, 1), ([1], 1, 8), (None, 8, 8)],
        ids=["first", "second", "both"],
    )
    @host_and_pure
    def test_replaced_gradients_of_inputs_go_where_they_belong(
        self, inputs: list[int] | None, upstream: int, weight: int, pure: bool
    ) -> None:
        def times_eight(*gradients: Any) -> Any:
            return [g * 8 for g in gradients]

        actual = self.gradients(
            InsertAt(
                self.adapter,
                "insert_on_grad_inputs",
                times_eight,
                "matmul",
                "head",
                inputs=inputs,
                pure=pure,
            )
        )
        plain = plain_gradients()
        assert_close(actual["w2"], plain.w2 * weight)
        assert_close(actual["w1"], plain.w1 * upstream)
        assert_close(actual["x"], plain.x * upstream)

    @host_and_pure
    def test_replaced_gradients_of_outputs_reach_all_inputs(self, pure: bool) -> None:
        actual = self.gradients(
            InsertAt(
                self.adapter, "insert_on_grad_outputs", lambda g: g * 8, "matmul", "head", pure=pure
            )
        )
        plain = plain_gradients()
        assert_close(actual["w2"], plain.w2 * 8)
        assert_close(actual["w1"], plain.w1 * 8)

    def test_gradient_routines_see_what_the_one_before_returned(self) -> None:
        actual = self.gradients(
            InsertAt(self.adapter, "insert_on_grad_outputs", lambda g: g * 2, "sigmoid"),
            InsertAt(self.adapter, "insert_on_grad_outputs", lambda g: g + 1, "sigmoid"),
            InsertAt(self.adapter, "insert_on_grad_inputs", lambda g: g * 4, "sigmoid"),
        )
        s = sigmoid(X @ W1)
        expected = (2 * (ONES @ W2.T) + 1) * s * (1 - s) * 4
        assert_close(actual["w1"], X.T @ expected)

    def test_they_compose_with_a_substituted_weight(self) -> None:
        mask = self.adapter.tensor(MASK)
        actual = self.gradients(
            InsertAt(
                self.adapter, "insert_before_op", lambda w: w * mask, "matmul", "hidden", inputs=[1]
            ),
            InsertAt(
                self.adapter,
                "insert_on_grad_inputs",
                lambda g: g * mask,
                "matmul",
                "hidden",
                inputs=[1],
            ),
        )
        plain = plain_gradients(w1=W1 * MASK)
        assert_close(actual["w1"], X.T @ plain.act * MASK)
        assert_close(actual["x"], plain.act @ (W1 * MASK).T)

    def test_only_one_consumers_share_of_a_gradient_is_replaced(self) -> None:
        x, u, v = (numbers(2, 3, seed=seed) for seed in (9, 10, 11))
        model = self.adapter.build(SHARED, {"u": u, "v": v})
        tool = InsertAt(
            self.adapter, "insert_on_grad_inputs", lambda g: g * 8, "multiply", "left", inputs=[0]
        )
        with amanda.apply(tool):
            actual = model.gradients(["x", "u", "v"], {"x": x})
        np.testing.assert_array_equal(actual["x"], u * 8 + v)
        np.testing.assert_array_equal(actual["u"], x)
        np.testing.assert_array_equal(actual["v"], x)

    def test_an_input_that_has_no_gradient_is_none(self) -> None:
        mask = np.array([[True, False, True]] * 2)
        x, z, c = (numbers(2, 3, seed=seed) for seed in (12, 13, 14))
        seen = []
        tool = InsertAt(
            self.adapter,
            "insert_on_grad_inputs",
            lambda *gs: seen.append([None if g is None else self.adapter.array(g) for g in gs]),
            "select",
        )
        model = self.adapter.build(SELECT, {})
        with amanda.apply(tool):
            model.gradients(["x", "z"], {"mask": mask, "x": x, "z": z, "c": c})
        ((dmask, dx, dz),) = seen
        assert dmask is None
        np.testing.assert_array_equal(dx, np.where(mask, c, 0))
        np.testing.assert_array_equal(dz, np.where(mask, 0, c))

    def test_an_input_that_needs_no_gradient(self) -> None:
        seen: list[Any] = []
        tool = InsertAt(
            self.adapter, "insert_on_grad_inputs", lambda *gs: seen.extend(gs), "matmul", "hidden"
        )
        model = self.perceptron()
        with amanda.apply(tool):
            model.gradients(["w1"], {"x": X})
        dx, dw = seen
        assert_close(self.adapter.array(dw), plain_gradients().w1)
        if self.adapter.none_for_unneeded_inputs:
            assert dx is None
        else:
            assert_close(self.adapter.array(dx), plain_gradients().x)

    def test_an_output_that_nothing_uses(self) -> None:
        x, z = numbers(2, 3, seed=15), numbers(3, seed=16)
        seen: list[Any] = []
        tool = InsertAt(
            self.adapter, "insert_on_grad_outputs", lambda *gs: seen.extend(gs), "unstack"
        )
        model = self.adapter.build(HALVES, {})
        with amanda.apply(tool):
            actual = model.gradients(["x"], {"x": x, "z": z})
        top, bottom = seen
        np.testing.assert_array_equal(self.adapter.array(top), z)
        if self.adapter.none_for_unused_outputs:
            assert bottom is None
        else:
            np.testing.assert_array_equal(self.adapter.array(bottom), np.zeros_like(z))
        np.testing.assert_array_equal(actual["x"], np.stack([z, np.zeros_like(z)]))

    # Backward operators, each by its own type

    def test_every_backward_operator_has_its_forward_operator(self) -> None:
        forward = Executions()
        types = [self.adapter.types[kind] for kind in ("matmul", "sigmoid")]
        pairs = []

        def analyze(ctx: amanda.OpContext) -> None:
            assert ctx.is_backward()
            assert not ctx.is_forward()
            assert ctx.backward_op is not None
            pairs.append((ctx.op.id, ctx.backward_op.id))

        self.gradients(forward.tool(types), Watch(analyze, types, backward=True))
        assert len(set(forward.ids)) == 3
        assert {op for op, _ in pairs} == set(forward.ids)
        backward_ids = [backward for _, backward in pairs]
        assert len(set(backward_ids)) == len(backward_ids)
        assert not set(backward_ids) & set(forward.ids)

    def test_forward_tools_do_not_see_backward_operators(self) -> None:
        model = self.adapter.build(SHARED, {"u": X, "v": X})

        def ids(run: Callable[[], object]) -> list[str]:
            executions = Executions()
            with amanda.apply(executions.tool([self.adapter.types["multiply"]])):
                run()
            return executions.ids

        forward = ids(lambda: model.forward({"x": X}))
        assert len(set(forward)) == 2
        assert ids(lambda: model.gradients(["x", "u", "v"], {"x": X})) == forward

    def test_backward_and_forward_share_the_context(self) -> None:
        seen = []

        def forward(ctx: amanda.OpContext) -> None:
            ctx["mark"] = ctx.op.id

        types = [self.adapter.types["sigmoid"]]
        self.gradients(
            Watch(forward, types),
            Watch(lambda ctx: seen.append((ctx["mark"], ctx.op.id)), types, backward=True),
            Watch(lambda ctx: seen.append((ctx["mark"], ctx.op.id)), types, gradient=True),
        )
        assert len(seen) == 2
        assert all(mark == id for mark, id in seen)

    @host_and_pure
    def test_a_routine_before_a_backward_operator_replaces_what_it_takes(self, pure: bool) -> None:
        actual = self._relu_gradient("insert_before_backward_op", pure=pure, grad_outputs=[0])
        np.testing.assert_array_equal(actual, np.where(X > 0, 8, 0))

    @host_and_pure
    def test_a_routine_after_a_backward_operator_replaces_what_it_gives(self, pure: bool) -> None:
        actual = self._relu_gradient("insert_after_backward_op", pure=pure)
        np.testing.assert_array_equal(actual, np.where(X > 0, 8, 0))

    @host_and_pure
    def test_a_backward_operator_is_replaced(self, pure: bool) -> None:
        actual = self._relu_gradient("replace_backward_op", pure=pure, grad_outputs=[0])
        np.testing.assert_array_equal(actual, np.full_like(X, 8))

    def _relu_gradient(self, insertion: str, **options: Any) -> Array:
        """Return relu's gradient at X for ones that come in, which a routine multiplies by 8."""
        model = self.adapter.build(Program("y = act/relu(x)"), {})
        with amanda.apply(InsertAt(self.adapter, insertion, lambda g: g * 8, "relu", **options)):
            return model.gradients(["x"], {"x": X})["x"]
