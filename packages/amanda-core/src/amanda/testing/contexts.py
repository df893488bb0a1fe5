"""These tests look at what a context shows of an operator, and the state that it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import amanda
from amanda.testing.adapter import assert_close, numbers
from amanda.testing.models import W1, W2, OnPerceptron, X, sigmoid
from amanda.testing.probes import InsertAt, Watch, host_and_pure
from amanda.testing.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HALVES = Program("""
    top, bottom = cut/unstack(x)
    y = join/multiply(top, bottom)
""")


class Contexts(OnPerceptron):
    """A context shows an operator as it is, and holds the state of tools:
    ``docs/semantics.md#what-a-context-shows``.
    """

    def look(
        self, kind: str, analyze: Callable[[amanda.OpContext], object], **options: Any
    ) -> None:
        """Have an analysis routine look at a perceptron's operators of a kind."""
        tool = Watch(analyze, [self.adapter.types[kind]], **options)
        with amanda.apply(tool):
            self.perceptron().gradients(["w1", "w2"], {"x": X})
        assert tool.analyzed

    def test_the_operator(self) -> None:
        def analyze(ctx: amanda.OpContext) -> None:
            assert ctx.op.type == self.adapter.types["sigmoid"]
            assert ctx.op.__name__ == ctx.op.type
            assert ctx.op.backend == self.adapter.backend
            assert self.adapter.layer(ctx.op) == "act"
            assert ctx.op_id == ctx.op.id
            assert ctx.op.name
            assert ctx.is_forward()
            assert not ctx.is_backward()
            assert ctx.backward_op is None
            assert ctx.backward_op_id is None

        self.look("sigmoid", analyze)

    def test_inputs_by_position_and_by_name(self) -> None:
        names = self.adapter.input_names["matmul"]

        def analyze(ctx: amanda.OpContext) -> None:
            assert tuple(ctx.input_names) == names
            assert len(ctx.inputs) == 2
            for name, tensor in zip(names, ctx.inputs, strict=True):
                assert ctx.input(name) is tensor
            with pytest.raises(amanda.ValueUnavailableError, match=names[0]):
                ctx.input("nonsense")

        self.look("matmul", analyze)

    def test_attributes_are_plain_values(self) -> None:
        seen = []
        tool = Watch(lambda ctx: seen.append(dict(ctx.attrs)), [self.adapter.types["unstack"]])
        with amanda.apply(tool):
            self.adapter.build(HALVES, {}).forward({"x": X})
        (attrs,) = seen
        expected = self.adapter.attrs["unstack"]
        assert expected
        assert {name: attrs[name] for name in expected} == expected

    def test_the_inputs_are_those_of_the_model_whatever_routines_do(self) -> None:
        seen = []
        tools = [
            InsertAt(self.adapter, "insert_before_op", lambda w: w * 2, "matmul", inputs=[1]),
            Watch(lambda ctx: seen.append(self.parameter(ctx)), [self.adapter.types["matmul"]]),
        ]
        with amanda.apply(*tools):
            result = self.perceptron().forward({"x": X})
        assert_close(result, sigmoid(X @ (W1 * 2)) @ (W2 * 2))
        if self.adapter.parameters_known:
            np.testing.assert_array_equal(seen[0], W1)
            np.testing.assert_array_equal(seen[1], W2)
        else:
            assert seen == [True, True]

    def parameter(self, ctx: amanda.OpContext) -> Any:
        """Return the weight's value or, where that is unknown, whether the input is a parameter."""
        return ctx.value(1) if self.adapter.parameters_known else ctx.parameters == [1]

    def test_the_weight_is_the_input_that_is_a_parameter(self) -> None:
        weights = []
        types = [self.adapter.types[kind] for kind in ("matmul", "sigmoid")]
        with amanda.apply(Watch(lambda ctx: weights.append(ctx.weight_index), types)):
            self.perceptron().forward({"x": X})
        assert sorted(weights, key=str) == [1, 1, None]

    def test_all_inputs_that_are_parameters_have_their_indices(self) -> None:
        found = []
        scaled = Program("""
            a = both/multiply(u, v)
            b = one/multiply(x, a)
            y = last/multiply(b, v)
        """)
        model = self.adapter.build(scaled, {"u": numbers(3), "v": numbers(3, seed=1)})
        types = [self.adapter.types["multiply"]]
        with amanda.apply(
            Watch(lambda ctx: found.append((ctx.parameters, ctx.weight_index)), types)
        ):
            model.forward({"x": numbers(3, seed=2)})
        assert sorted(found) == [([], None), ([0, 1], 0), ([1], 1)]

    def test_the_activation_is_the_one_input_that_is_no_parameter(self) -> None:
        found: dict[str, int | None] = {}
        program = Program("""
            a = left/multiply(u, x)
            b = right/multiply(x, v)
            c = both/multiply(u, v)
            d = join/multiply(a, b)
            y = last/multiply(d, c)
        """)
        model = self.adapter.build(program, {"u": numbers(3), "v": numbers(3, seed=1)})

        def analyze(ctx: amanda.OpContext) -> None:
            found[self.adapter.layer(ctx.op)] = ctx.activation

        with amanda.apply(Watch(analyze, [self.adapter.types["multiply"]])):
            model.forward({"x": numbers(3, seed=2)})
        assert found == {"left": 1, "right": 0, "both": None, "join": None, "last": None}

    def test_what_chooses_is_no_activation(self) -> None:
        found = []
        model = self.adapter.build(Program("y = choose/select(mask, x, w)"), {"w": numbers(2, 3)})
        types = [self.adapter.types["select"]]
        with amanda.apply(Watch(lambda ctx: found.append(ctx.activation), types)):
            model.forward({"mask": np.ones((2, 3), np.bool_), "x": X})
        assert found == [1]

    def test_published_entries_are_what_the_context_shows(self) -> None:
        def analyze(ctx: amanda.OpContext) -> None:
            assert ctx["op"] == ctx.op
            assert ctx["inputs"] is ctx.inputs
            assert ctx["outputs"] is ctx.outputs
            assert "inputs" not in dict(ctx)
            with pytest.raises(KeyError):
                ctx["nonsense"]
            ctx["op"] = "a tool's own"
            assert ctx["op"] == "a tool's own"
            del ctx["op"]

        self.look("sigmoid", analyze, require_outputs=True)

        def analyze_backward(ctx: amanda.OpContext) -> None:
            assert ctx["backward_op"] == ctx.backward_op
            assert ctx["grad_outputs"] is ctx.grad_outputs
            assert ctx["grad_inputs"] is ctx.grad_inputs

        self.look("sigmoid", analyze_backward, backward=True, require_outputs=True)

    def test_outputs_are_shown_when_they_are_required(self) -> None:
        def analyze(ctx: amanda.OpContext) -> None:
            assert len(ctx.outputs) == 1
            assert len(ctx.inputs) == 1
            if self.adapter.eager:
                (output,) = ctx.outputs
                assert_close(self.adapter.array(output), sigmoid(X @ W1))

        self.look("sigmoid", analyze, require_outputs=True)

    def test_all_outputs_of_an_operator_are_shown(self) -> None:
        counts = []
        tool = Watch(
            lambda ctx: counts.append(len(ctx.outputs)),
            [self.adapter.types["unstack"]],
            require_outputs=True,
        )
        with amanda.apply(tool):
            self.adapter.build(HALVES, {}).forward({"x": X})
        assert counts == [2]

    def test_a_routine_inserted_after_seeing_the_outputs_runs_at_once(self) -> None:
        def analyze(ctx: amanda.OpContext) -> None:
            count = len(ctx.outputs)
            ctx.insert_after_op(lambda a: a * (2 * count))

        tool = Watch(analyze, [self.adapter.types["sigmoid"]], require_outputs=True)
        model = self.perceptron()
        with amanda.apply(tool):
            for _ in range(2):
                result = model.forward({"x": X})
                assert_close(result, 2 * sigmoid(X @ W1) @ W2)

    def test_a_routine_inserted_in_front_after_seeing_the_outputs_runs_at_once(self) -> None:
        """The routines that were there already still run once an execution."""
        ran: list[bool] = []

        def analyze(ctx: amanda.OpContext) -> None:
            count = len(ctx.outputs)
            ctx.insert_before_op(lambda h: h * (2 * count))

        tools = [
            InsertAt(self.adapter, "insert_before_op", lambda h: ran.append(True), "sigmoid"),
            Watch(analyze, [self.adapter.types["sigmoid"]], require_outputs=True),
        ]
        model = self.perceptron()
        with amanda.apply(*tools):
            for _ in range(2):
                assert_close(model.forward({"x": X}), sigmoid(2 * X @ W1) @ W2)
        assert len(ran) == 2

    def test_input_gradients_are_shown_when_they_are_required(self) -> None:
        counts = []
        self.look(
            "sigmoid",
            lambda ctx: counts.append(len(ctx.grad_inputs)),
            backward=True,
            require_outputs=True,
        )
        assert counts == [1]

    def test_a_context_shows_tensors_only_during_analysis(self) -> None:
        kept: list[amanda.OpContext] = []
        self.look("sigmoid", kept.append)
        (ctx,) = kept
        with pytest.raises(amanda.ValueUnavailableError, match="during an analysis"):
            ctx.inputs  # noqa: B018
        with pytest.raises(amanda.ValueUnavailableError, match="during an analysis"):
            ctx.insert_before_op(print)

    @host_and_pure
    def test_a_variable_is_assigned_without_a_new_analysis(self, pure: bool) -> None:
        variables = []

        def analyze(ctx: amanda.OpContext) -> None:
            scale = ctx.variable("scale", np.float32(2))
            variables.append(scale)
            ctx.insert_after_op(lambda a, by: a * by, pure=pure, by=scale)

        tool = Watch(analyze, [self.adapter.types["sigmoid"]])
        model = self.perceptron()
        plain = sigmoid(X @ W1) @ W2
        with amanda.apply(tool):
            for factor in (2, 4, 8):
                assert_close(model.forward({"x": X}), factor * plain)
                variables[0].assign(np.float32(2 * factor))
        assert len(tool.analyzed) == 1

    @host_and_pure
    def test_a_routine_may_close_over_a_variable(self, pure: bool) -> None:
        masks = []

        def analyze(ctx: amanda.OpContext) -> None:
            if self.adapter.layer(ctx.op) == "hidden":
                mask = ctx.variable("mask", np.ones_like(W1))
                masks.append(mask)
                ctx.insert_before_op(lambda w: w * mask, inputs=[1], pure=pure)

        model = self.perceptron()
        half = numbers(3, 4, seed=20)
        with amanda.apply(Watch(analyze, [self.adapter.types["matmul"]])):
            model.forward({"x": X})
            masks[0].assign(half)
            result = model.forward({"x": X})
        assert_close(result, sigmoid(X @ (W1 * half)) @ W2)

    def test_a_variable_keeps_its_value_through_a_new_analysis(self) -> None:
        variables = []

        def analyze(ctx: amanda.OpContext) -> None:
            variables.append(ctx.variable("scale", np.float32(2)))
            ctx.insert_after_op(lambda a, by: a * by, by=variables[-1])

        tool = Watch(analyze, [self.adapter.types["sigmoid"]])
        model = self.perceptron()
        with amanda.apply(tool):
            model.forward({"x": X})
            variables[0].assign(np.float32(4))
            tool.invalidate()
            result = model.forward({"x": X})
        assert_close(result, 4 * sigmoid(X @ W1) @ W2)
        assert variables[0] is variables[1]

    def test_two_tools_have_variables_of_their_own(self) -> None:
        model = self.perceptron()

        def analyze(ctx: amanda.OpContext) -> None:
            variables.append(ctx.variable("scale", np.float32(2)))

        variables: list[Any] = []
        types = [self.adapter.types["sigmoid"]]
        with amanda.apply(Watch(analyze, types), Watch(analyze, types)):
            model.forward({"x": X})
        one, other = variables
        assert one is not other

    def test_state_of_one_tool_at_an_operator_is_shared_by_its_routines(self) -> None:
        adapter = self.adapter

        class Counting(Watch):
            def __init__(self, ops: Sequence[str]) -> None:
                super().__init__(self.analyze, ops)
                self.add_inst_for_gradient(self.analyze_gradient, ops=ops)
                self.found: list[tuple[str, int]] = []

            def analyze(self, ctx: amanda.OpContext) -> None:
                ctx.insert_before_op(self.count, ctx=ctx)

            def analyze_gradient(self, ctx: amanda.OpContext) -> None:
                ctx.insert_on_grad_outputs(self.tell, ctx=ctx)

            def count(self, *tensors: Any, ctx: amanda.OpContext) -> None:
                state = ctx.state(self)
                state["count"] = state.get("count", 0) + 1

            def tell(self, *gradients: Any, ctx: amanda.OpContext) -> None:
                self.found.append((adapter.layer(ctx.op), ctx.state(self)["count"]))

        outer, inner = (Counting([adapter.types["matmul"]]) for _ in range(2))
        model = self.perceptron()
        with amanda.apply(outer):
            model.gradients(["w1", "w2"], {"x": X})
            with amanda.apply(inner):
                model.gradients(["w1", "w2"], {"x": X})
        assert outer.found == [("head", 1), ("hidden", 1), ("head", 2), ("hidden", 2)]
        assert inner.found == [("head", 1), ("hidden", 1)]

    @host_and_pure
    def test_the_array_namespace_in_a_routine(self, pure: bool) -> None:
        def analyze(ctx: amanda.OpContext) -> None:
            ctx.insert_before_op(lambda h: ctx.xp.abs(h), pure=pure)

        model = self.perceptron()
        with amanda.apply(Watch(analyze, [self.adapter.types["sigmoid"]])):
            result = model.forward({"x": X})
        assert_close(result, sigmoid(abs(X @ W1)) @ W2)

    @host_and_pure
    def test_the_array_namespace(self, pure: bool) -> None:
        def analyze(ctx: amanda.OpContext) -> None:
            xp = ctx.xp
            ctx.insert_before_op(lambda h: xp.where(xp.abs(h) > 1, h, xp.zeros_like(h)), pure=pure)

        model = self.perceptron()
        with amanda.apply(Watch(analyze, [self.adapter.types["sigmoid"]])):
            result = model.forward({"x": X})
        h = X @ W1
        expected = sigmoid(np.where(abs(h) > 1, h, np.zeros_like(h))) @ W2
        assert_close(result, expected)
