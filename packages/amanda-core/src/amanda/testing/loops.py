"""These tests of S1 to S4 and S8 insert at operators in loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import amanda
from amanda.testing.adapter import numbers
from amanda.testing.models import Sharing
from amanda.testing.probes import INSERTIONS, Executions, InsertAt, host_and_pure
from amanda.testing.program import Program

if TYPE_CHECKING:
    from amanda.testing.adapter import Array, Model

# x * w**3: the gradient for x is w**3, and that for w is x * w**2 for each turn.
POWER = Program("y = turn/multiply(x, w) 3 times")
W = numbers(3, seed=3)
X = numbers(3, seed=4)


class Loops(Sharing):
    """An operator in a loop is instrumented in every turn: ``docs/semantics.md#s4-identity``."""

    def power(self) -> Model:
        """Return a model that multiplies x by w in a loop of three turns."""
        return self.shared(POWER, {"w": W})

    def powers(self, *tools: amanda.Tool) -> tuple[Array, Array, Array]:
        """Return that model's output, and its gradients for x and w, with these tools active."""
        model = self.power()
        with amanda.apply(*tools):
            output = model.forward({"x": X})
            gradients = model.gradients(["x", "w"], {"x": X})
        return output, gradients["x"], gradients["w"]

    def in_loop(self, insertion: str, routine: Any, **options: Any) -> InsertAt:
        """Return a tool that inserts into the loop."""
        return InsertAt(self.adapter, insertion, routine, "multiply", **options)

    def test_every_turn_is_an_execution(self) -> None:
        executions, model = Executions(), self.power()
        tool = executions.tool([self.adapter.types["multiply"]])
        with amanda.apply(tool):
            for _ in range(2):
                model.forward({"x": X})
        assert len(executions.ids) == 6
        assert executions.ids[:3] == executions.ids[3:]
        operators = 1 if self.adapter.one_in_loop else 3
        assert len(set(executions.ids)) == len(tool.analyzed) == operators

    def test_every_turn_has_a_backward(self) -> None:
        seen: list[bool] = []
        tool = self.in_loop("insert_on_grad_outputs", lambda g: seen.append(True))
        model = self.power()
        with amanda.apply(tool):
            model.gradients(["x", "w"], {"x": X})
        assert len(seen) == 3

    @host_and_pure
    def test_a_tool_that_looks_into_a_loop_changes_nothing(self, pure: bool) -> None:
        def look(*tensors: Any) -> None:
            looked.append(True)

        looked: list[bool] = []
        output, dx, dw = self.powers(
            *(self.in_loop(insertion, look, pure=pure) for insertion in INSERTIONS)
        )
        assert looked
        np.testing.assert_array_equal(output, X * W * W * W)
        np.testing.assert_array_equal(dx, W * W * W)
        np.testing.assert_array_equal(dw, 3 * X * W * W)

    @host_and_pure
    def test_a_substituted_weight_counts_in_every_turn(self, pure: bool) -> None:
        output, dx, dw = self.powers(
            self.in_loop("insert_before_op", lambda w: w * 2, inputs=[1], pure=pure)
        )
        np.testing.assert_array_equal(output, 8 * X * W**3)
        np.testing.assert_array_equal(dx, 8 * W**3)
        np.testing.assert_array_equal(dw, 12 * X * W**2)

    @host_and_pure
    def test_a_substituted_input_that_all_turns_share_counts_in_each(self, pure: bool) -> None:
        model = self.shared(POWER, {})
        tool = self.in_loop("insert_before_op", lambda w: w * 2, inputs=[1], pure=pure)
        with amanda.apply(tool):
            gradients = model.gradients(["x", "w"], {"x": X, "w": W})
        np.testing.assert_array_equal(gradients["x"], 8 * W**3)
        np.testing.assert_array_equal(gradients["w"], 12 * X * W**2)

    @pytest.mark.parametrize("parameters", [{"w": W}, {}], ids=["weight", "input"])
    def test_a_substitute_may_be_another_one_in_each_turn(self, parameters: Any) -> None:
        """The turns multiply by w, 2 * w and 3 * w."""
        turns: list[bool] = []

        def scaled(w: Any) -> Any:
            turns.append(True)
            return w * ((len(turns) - 1) % 3 + 1)

        model = self.shared(POWER, parameters)
        inputs = {"x": X, "w": W} if not parameters else {"x": X}
        with amanda.apply(self.in_loop("insert_before_op", scaled, inputs=[1])):
            gradients = model.gradients(["x", "w"], inputs)
        np.testing.assert_array_equal(gradients["x"], 6 * W**3)
        np.testing.assert_array_equal(gradients["w"], (2 * 3 + 3 + 2) * X * W**2)

    @host_and_pure
    def test_a_substituted_output_goes_into_the_next_turn(self, pure: bool) -> None:
        output, dx, dw = self.powers(self.in_loop("insert_after_op", lambda y: y + 1, pure=pure))
        first = X * W + 1
        second = first * W + 1
        np.testing.assert_array_equal(output, second * W + 1)
        np.testing.assert_array_equal(dx, W**3)
        np.testing.assert_array_equal(dw, second + W * first + W**2 * X)

    @host_and_pure
    def test_a_substituted_gradient_goes_into_the_turn_before(self, pure: bool) -> None:
        output, dx, dw = self.powers(
            self.in_loop("insert_on_grad_outputs", lambda g: g * 2, pure=pure)
        )
        np.testing.assert_array_equal(output, X * W**3)
        np.testing.assert_array_equal(dx, 8 * W**3)
        np.testing.assert_array_equal(dw, (2 + 4 + 8) * X * W**2)

    @host_and_pure
    def test_a_replaced_operator_keeps_its_gradient_in_every_turn(self, pure: bool) -> None:
        output, dx, dw = self.powers(self.in_loop("replace_op", lambda x, w: x + 1, pure=pure))
        np.testing.assert_array_equal(output, X + 3)
        np.testing.assert_array_equal(dx, W**3)
        np.testing.assert_array_equal(dw, (X + 2) + W * (X + 1) + W**2 * X)

    def test_a_routine_that_fails_in_a_later_turn_is_named(self) -> None:
        turns: list[bool] = []

        def fails(*tensors: Any) -> None:
            turns.append(True)
            if len(turns) == 2:
                raise KeyError("lost")

        model = self.power()
        with (
            pytest.raises(amanda.RoutineError, match="lost") as caught,
            amanda.apply(self.in_loop("insert_before_op", fails)),
        ):
            model.forward({"x": X})
        assert caught.value.routine.endswith("fails")
        assert self.adapter.types["multiply"] in caught.value.operator_id
        assert len(turns) == 2
        np.testing.assert_array_equal(model.forward({"x": X}), X * W**3)

    def test_a_variable_that_a_routine_assigns_is_read_in_the_next_turn(self) -> None:
        """The turns multiply by 1, 2 and 3 in addition."""
        variables: list[Any] = []

        def analyze(ctx: amanda.OpContext) -> None:
            if not variables:
                variables.append(ctx.variable("turn", np.float32(0)))
            ctx.insert_after_op(self.times_turn, turn=variables[0])

        tool = amanda.Tool()
        tool.add_inst_for_op(analyze, ops=[self.adapter.types["multiply"]])
        self.turn = 0
        model = self.power()
        with amanda.apply(tool):
            np.testing.assert_array_equal(model.forward({"x": X}), 6 * X * W**3)
        assert self.turn == 3

    def times_turn(self, y: Any, turn: Any) -> Any:
        """Multiply by the number of the turn."""
        self.turn += 1
        turn.assign(np.float32(self.turn))
        return y * turn
