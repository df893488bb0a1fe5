"""S3: what gradients see of routines, and what routines see of gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

import amanda
from amanda.testing.adapter import Adapter, assert_close, numbers
from amanda.testing.probes import W1, W2, Executions, Insert, Watch, X, perceptron, sigmoid
from amanda.testing.program import Program

if TYPE_CHECKING:
    from amanda.testing.adapter import Array

HALVES = Program("""
    top, bottom = cut/unstack(x)
    y = join/multiply(top, z)
""")
SELECT = Program("""
    s = choose/select(mask, x, z)
    y = weigh/multiply(s, c)
""")
SHARED = Program("""
    a = left/multiply(x, u)
    b = right/multiply(x, v)
    y = join/add(a, b)
""")
# The output is summed up, so this is the gradient that comes in at the head.
ONES = np.ones((2, 2), np.float32)
MASK = np.array([[1, 0, 1, 0]] * 3, np.float32)

host_and_pure = pytest.mark.parametrize("pure", [False, True], ids=["host", "pure"])


class _Plain(NamedTuple):
    """The perceptron's gradients, written out by hand."""

    act: Array  # at the sigmoid's input
    x: Array
    w1: Array
    w2: Array


def _plain(w1: Array = W1, a: Array | None = None) -> _Plain:
    """With another weight in the hidden layer, or another input ``a`` to the head."""
    own = sigmoid(X @ w1)  # the sigmoid's own output, which its gradient uses
    act = ONES @ W2.T * own * (1 - own)
    return _Plain(act, x=act @ w1.T, w1=X.T @ act, w2=(own if a is None else a).T @ ONES)


class Gradients:
    """S3."""

    adapter: Adapter

    def gradients(self, *tools: amanda.Tool) -> dict[str, Array]:
        """The perceptron's gradients for x, w1 and w2 with these tools in force."""
        model = perceptron(self.adapter)
        with amanda.apply(*tools):
            return model.gradients(["x", "w1", "w2"], {"x": X})

    def insert(self, *args: Any, **options: Any) -> Insert:
        """A tool that inserts one routine."""
        return Insert(self.adapter, *args, **options)

    def test_without_tools_they_are_the_references(self) -> None:
        actual, plain = self.gradients(), _plain()
        assert_close(actual["x"], plain.x)
        assert_close(actual["w1"], plain.w1)
        assert_close(actual["w2"], plain.w2)

    # Routines are not differentiated

    @host_and_pure
    def test_a_masked_weight_gives_dx_masked_and_dw_unmasked(self, pure: bool) -> None:
        mask = self.adapter.tensor(MASK)
        actual = self.gradients(
            self.insert(
                "insert_before_op", lambda w: w * mask, "matmul", "hidden", inputs=[1], pure=pure
            )
        )
        plain = _plain(w1=W1 * MASK)
        assert_close(actual["x"], plain.act @ (W1 * MASK).T)
        assert_close(actual["w1"], X.T @ plain.act)
        assert_close(actual["w2"], plain.w2)

    @host_and_pure
    def test_the_operators_own_gradient_sees_its_substituted_inputs(self, pure: bool) -> None:
        actual = self.gradients(
            self.insert("insert_before_op", lambda h: h + 1, "sigmoid", pure=pure)
        )
        s = sigmoid(X @ W1 + 1)
        assert_close(actual["w1"], X.T @ (ONES @ W2.T * s * (1 - s)))
        assert_close(actual["w2"], s.T @ ONES)

    @host_and_pure
    def test_downstream_gradients_see_the_substituted_output(self, pure: bool) -> None:
        actual = self.gradients(
            self.insert("insert_after_op", lambda a: a * 2 + 1, "sigmoid", pure=pure)
        )
        assert_close(actual["w2"], (2 * sigmoid(X @ W1) + 1).T @ ONES)

    @host_and_pure
    def test_an_operators_own_gradient_uses_its_original_output(self, pure: bool) -> None:
        actual = self.gradients(
            self.insert("insert_after_op", lambda a: a * 2 + 1, "sigmoid", pure=pure)
        )
        assert_close(actual["w1"], _plain().w1)
        assert_close(actual["x"], _plain().x)

    @host_and_pure
    def test_substituted_inputs_and_outputs_together(self, pure: bool) -> None:
        actual = self.gradients(
            self.insert("insert_before_op", lambda h: h + 1, "sigmoid", pure=pure),
            self.insert("insert_after_op", lambda a: a * 2, "sigmoid", pure=pure),
        )
        s = sigmoid(X @ W1 + 1)
        assert_close(actual["w2"], (2 * s).T @ ONES)
        assert_close(actual["w1"], X.T @ (ONES @ W2.T * s * (1 - s)))

    @host_and_pure
    def test_a_chain_of_substitutes_passes_gradients_through(self, pure: bool) -> None:
        doubling = [
            self.insert("insert_before_op", lambda h: h * 2, "sigmoid", pure=pure) for _ in range(3)
        ]
        s = sigmoid(X @ W1 * 8)
        assert_close(self.gradients(*doubling)["w1"], X.T @ (ONES @ W2.T * s * (1 - s)))

    @host_and_pure
    def test_both_inputs_of_an_operator_substituted(self, pure: bool) -> None:
        x, z = numbers(2, 3, seed=7), numbers(2, 3, seed=8)
        model = self.adapter.build(Program("y = mix/multiply(x, z)"), {})
        tool = self.insert("insert_before_op", lambda x, z: (x + 1, z * 2), "multiply", pure=pure)
        with amanda.apply(tool):
            actual = model.gradients(["x", "z"], {"x": x, "z": z})
        np.testing.assert_array_equal(actual["x"], z * 2)
        np.testing.assert_array_equal(actual["z"], x + 1)

    @host_and_pure
    def test_one_consumer_of_a_tensor_sees_a_substitute(self, pure: bool) -> None:
        x, u, v = (numbers(2, 3, seed=seed) for seed in (9, 10, 11))
        model = self.adapter.build(SHARED, {"u": u, "v": v})
        tool = self.insert(
            "insert_before_op", lambda x: x * 2, "multiply", "left", inputs=[0], pure=pure
        )
        with amanda.apply(tool):
            actual = model.gradients(["x", "u", "v"], {"x": x})
        np.testing.assert_array_equal(actual["x"], u + v)
        np.testing.assert_array_equal(actual["u"], 2 * x)
        np.testing.assert_array_equal(actual["v"], x)

    @host_and_pure
    def test_a_replaced_operator_keeps_its_gradient(self, pure: bool) -> None:
        actual = self.gradients(self.insert("replace_op", lambda h: h * 2, "sigmoid", pure=pure))
        plain = _plain(a=X @ W1 * 2)
        assert_close(actual["w2"], plain.w2)
        assert_close(actual["w1"], plain.w1)
        assert_close(actual["x"], plain.x)

    @host_and_pure
    def test_a_replaced_operators_gradient_sees_substituted_inputs(self, pure: bool) -> None:
        actual = self.gradients(
            self.insert("insert_before_op", lambda h: h + 1, "sigmoid", pure=pure),
            self.insert("replace_op", lambda h: h * 2, "sigmoid", pure=pure),
        )
        s = sigmoid(X @ W1 + 1)
        assert_close(actual["w2"], ((X @ W1 + 1) * 2).T @ ONES)
        assert_close(actual["w1"], X.T @ (ONES @ W2.T * s * (1 - s)))

    def test_a_replaced_operator_without_need_of_a_gradient(self) -> None:
        tool = self.insert("replace_op", lambda h: h * 2, "sigmoid")
        model = perceptron(self.adapter)
        with amanda.apply(tool):
            actual = model.gradients(["w2"], {"x": X})
        assert_close(actual["w2"], (X @ W1 * 2).T @ ONES)

    # differentiable=True

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

        tool = self.insert(insertion, noting, "sigmoid", pure=pure, differentiable=True)
        if self.adapter.differentiable:
            derivative = expected()
            assert_close(self.gradients(tool)["w1"], X.T @ (ONES @ W2.T * derivative))
        else:
            with pytest.raises(amanda.UnsupportedError):
                self.gradients(tool)
            assert not ran

    # The gradient of an operator as a whole

    def test_it_lines_up_with_inputs_and_outputs(self) -> None:
        seen: dict[str, list[Array]] = {}

        def note(*gradients: Any, place: str) -> None:
            seen[place] = [self.adapter.array(gradient) for gradient in gradients]

        self.gradients(
            self.insert("insert_on_grad_outputs", note, "matmul", "hidden", place="outputs"),
            self.insert("insert_on_grad_inputs", note, "matmul", "hidden", place="inputs"),
        )
        plain = _plain()
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
        # on the way back: head, act, hidden
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
            self.insert(
                "insert_on_grad_inputs", times_eight, "matmul", "head", inputs=inputs, pure=pure
            )
        )
        plain = _plain()
        assert_close(actual["w2"], plain.w2 * weight)
        assert_close(actual["w1"], plain.w1 * upstream)
        assert_close(actual["x"], plain.x * upstream)

    @host_and_pure
    def test_replaced_gradients_of_outputs_reach_all_inputs(self, pure: bool) -> None:
        actual = self.gradients(
            self.insert("insert_on_grad_outputs", lambda g: g * 8, "matmul", "head", pure=pure)
        )
        plain = _plain()
        assert_close(actual["w2"], plain.w2 * 8)
        assert_close(actual["w1"], plain.w1 * 8)

    def test_gradient_routines_see_what_the_one_before_returned(self) -> None:
        actual = self.gradients(
            self.insert("insert_on_grad_outputs", lambda g: g * 2, "sigmoid"),
            self.insert("insert_on_grad_outputs", lambda g: g + 1, "sigmoid"),
            self.insert("insert_on_grad_inputs", lambda g: g * 4, "sigmoid"),
        )
        s = sigmoid(X @ W1)
        expected = (2 * (ONES @ W2.T) + 1) * s * (1 - s) * 4
        assert_close(actual["w1"], X.T @ expected)

    def test_they_compose_with_a_substituted_weight(self) -> None:
        mask = self.adapter.tensor(MASK)
        actual = self.gradients(
            self.insert("insert_before_op", lambda w: w * mask, "matmul", "hidden", inputs=[1]),
            self.insert(
                "insert_on_grad_inputs", lambda g: g * mask, "matmul", "hidden", inputs=[1]
            ),
        )
        plain = _plain(w1=W1 * MASK)
        assert_close(actual["w1"], X.T @ plain.act * MASK)
        assert_close(actual["x"], plain.act @ (W1 * MASK).T)

    def test_only_one_consumers_share_of_a_gradient_is_replaced(self) -> None:
        x, u, v = (numbers(2, 3, seed=seed) for seed in (9, 10, 11))
        model = self.adapter.build(SHARED, {"u": u, "v": v})
        tool = self.insert("insert_on_grad_inputs", lambda g: g * 8, "multiply", "left", inputs=[0])
        with amanda.apply(tool):
            actual = model.gradients(["x", "u", "v"], {"x": x})
        np.testing.assert_array_equal(actual["x"], u * 8 + v)
        np.testing.assert_array_equal(actual["u"], x)
        np.testing.assert_array_equal(actual["v"], x)

    def test_an_input_that_has_no_gradient_is_none(self) -> None:
        mask = np.array([[True, False, True]] * 2)
        x, z, c = (numbers(2, 3, seed=seed) for seed in (12, 13, 14))
        seen = []
        tool = self.insert(
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
        tool = self.insert("insert_on_grad_inputs", lambda *gs: seen.extend(gs), "matmul", "hidden")
        model = perceptron(self.adapter)
        with amanda.apply(tool):
            model.gradients(["w1"], {"x": X})
        dx, dw = seen
        assert_close(self.adapter.array(dw), _plain().w1)
        if self.adapter.none_for_unneeded_inputs:
            assert dx is None
        else:
            assert_close(self.adapter.array(dx), _plain().x)

    def test_an_output_that_nothing_uses(self) -> None:
        x, z = numbers(2, 3, seed=15), numbers(3, seed=16)
        seen: list[Any] = []
        tool = self.insert("insert_on_grad_outputs", lambda *gs: seen.extend(gs), "unstack")
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
        assert {op for op, _ in pairs} == set(forward.ids)
        backward_ids = [backward for _, backward in pairs]
        assert len(set(backward_ids)) == len(backward_ids)
        assert not set(backward_ids) & set(forward.ids)

    def test_forward_tools_do_not_see_backward_operators(self) -> None:
        def ids(run: Any) -> list[str]:
            executions = Executions()
            model = self.adapter.build(SHARED, {"u": X, "v": X})
            with amanda.apply(executions.tool([self.adapter.types["multiply"]])):
                run(model)
            return executions.ids

        assert ids(lambda model: model.gradients(["x", "u", "v"], {"x": X})) == ids(
            lambda model: model.forward({"x": X})
        )

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
        """The gradient of relu at X for ones that come in, with a routine that gives 8 times."""
        model = self.adapter.build(Program("y = act/relu(x)"), {})
        with amanda.apply(self.insert(insertion, lambda g: g * 8, "relu", **options)):
            return model.gradients(["x"], {"x": X})["x"]
