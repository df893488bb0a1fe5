"""These tests of S1 to S3 are about operators that take no tensors: a range, a constant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import amanda
from amanda.testing.adapter import numbers
from amanda.testing.models import Sharing
from amanda.testing.probes import Executions, InsertAt, Watch, host_and_pure
from amanda.testing.program import Program

if TYPE_CHECKING:
    from amanda.testing.adapter import Array

WEIGHED = Program("""
    r = source/range()
    y = weigh/multiply(x, r)
""")
X = numbers(3, seed=5)
RANGE = np.arange(3, dtype=np.float32)


class WithoutTensors(Sharing):
    """S1, an operator that takes no tensors is one like any other: ``docs/semantics.md#s1-order``.

    Its operators are looked at in one layer alone, since a backend may have others of its type.
    """

    def weighed(self, *tools: amanda.Tool) -> Array:
        """Return the output with these tools active."""
        model = self.shared(WEIGHED, {})
        with amanda.apply(*tools):
            return model.forward({"x": X})

    def at_source(self, insertion: str, routine: Any, **options: Any) -> InsertAt:
        """Return a tool that inserts at the range."""
        return InsertAt(self.adapter, insertion, routine, "range", "source", **options)

    def test_a_context_shows_none(self) -> None:
        shown: list[tuple[int, int, object, list[int]]] = []

        def analyze(ctx: amanda.OpContext) -> None:
            if self.adapter.layer(ctx.op) == "source":
                names = len(ctx.input_names)
                shown.append((len(ctx.inputs), names, ctx.weight_index, ctx.parameters))
                with pytest.raises(amanda.ActionError):
                    ctx.insert_before_op(lambda *tensors: None, inputs=[0])

        np.testing.assert_array_equal(
            self.weighed(Watch(analyze, [self.adapter.types["range"]])), X * RANGE
        )
        assert shown == [(0, 0, None, [])]

    def test_its_output_is_shown_when_it_is_required(self) -> None:
        counts: list[int] = []

        def analyze(ctx: amanda.OpContext) -> None:
            if self.adapter.layer(ctx.op) == "source":
                counts.append(len(ctx.outputs))

        self.weighed(Watch(analyze, [self.adapter.types["range"]], require_outputs=True))
        assert counts == [1]

    @host_and_pure
    def test_a_routine_before_it_is_given_none(self, pure: bool) -> None:
        given: list[tuple[Any, ...]] = []
        tool = self.at_source("insert_before_op", lambda *ts: given.append(ts), pure=pure)
        np.testing.assert_array_equal(self.weighed(tool), X * RANGE)
        assert given == [()]

    def test_a_routine_before_it_runs_at_every_execution(self) -> None:
        executions = Executions()
        tool = self.at_source("insert_before_op", executions.note, id="source")
        model = self.shared(WEIGHED, {})
        with amanda.apply(tool):
            for _ in range(3):
                model.forward({"x": X})
        assert executions.ids == ["source"] * 3

    def test_a_routine_before_it_has_nothing_to_return(self) -> None:
        tool = self.at_source("insert_before_op", lambda: self.adapter.tensor(RANGE))
        with pytest.raises(amanda.RoutineError, match="expected 0"):
            self.weighed(tool)

    @host_and_pure
    def test_what_a_routine_after_it_returns_stands_for_its_output(self, pure: bool) -> None:
        tool = self.at_source("insert_after_op", lambda r: r + 1, pure=pure)
        np.testing.assert_array_equal(self.weighed(tool), X * (RANGE + 1))

    @host_and_pure
    def test_it_can_be_replaced(self, pure: bool) -> None:
        tensor = self.adapter.tensor(RANGE[::-1].copy())
        tool = self.at_source("replace_op", lambda: tensor, pure=pure)
        np.testing.assert_array_equal(self.weighed(tool), X * RANGE[::-1])

    def test_what_is_downstream_has_its_gradient_by_the_substitute(self) -> None:
        model = self.shared(WEIGHED, {})
        with amanda.apply(self.at_source("insert_after_op", lambda r: r + 1)):
            (gradient,) = model.gradients(["x"], {"x": X}).values()
        np.testing.assert_array_equal(gradient, RANGE + 1)

    def test_a_tool_that_asks_for_its_gradient_changes_nothing(self) -> None:
        model = self.shared(WEIGHED, {})
        executions = Executions()
        tools = [
            self.at_source("insert_on_grad_inputs", lambda *gs: None),
            executions.tool([self.adapter.types["multiply"]]),
        ]
        with amanda.apply(*tools):
            (gradient,) = model.gradients(["x"], {"x": X}).values()
        np.testing.assert_array_equal(gradient, RANGE)
        assert len(executions.ids) == 1
