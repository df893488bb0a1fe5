"""These tests of S1 look at the order of routines: each sees what the one before it returned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import amanda
from amanda.testing.adapter import assert_close, numbers
from amanda.testing.models import W1, W2, OnPerceptron, X, sigmoid
from amanda.testing.probes import InsertAt
from amanda.testing.program import Program

RELU = Program("y = act/relu(x)")
POSITIVE = abs(numbers(2, 3)) + np.float32(0.25)

# For each tool: where it inserts its routines, and which of the tools before it it depends on.
tools_and_dependencies = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["insert_before_op", "insert_after_op"]), max_size=3),
        st.sets(st.integers(0, 3)),
    ),
    min_size=1,
    max_size=4,
)


class _Chain(amanda.Tool):
    """This tool inserts routines that note that they ran, and whose order changes the tensor."""

    def __init__(self, op: str, number: int, insertions: list[str], ran: list[tuple[int, int]]):
        super().__init__()
        self._number = number
        self._insertions = insertions
        self._ran = ran
        self.add_inst_for_op(self.analyze, ops=[op])

    def analyze(self, ctx: amanda.OpContext) -> None:
        for place, insertion in enumerate(self._insertions):
            getattr(ctx, insertion)(self.step, place=place)

    def step(self, tensor: Any, place: int) -> Any:
        self._ran.append((self._number, place))
        return tensor * 2 + (self._number + place)


def _dependencies_first(applied: list[int], depends: list[list[int]]) -> list[int]:
    order: list[int] = []

    def visit(number: int) -> None:
        for dependency in depends[number]:
            visit(dependency)
        if number not in order:
            order.append(number)

    for number in applied:
        visit(number)
    return order


class Order(OnPerceptron):
    """S1, routines run in one order: ``docs/semantics.md#s1-order``."""

    @settings(
        max_examples=25, deadline=None, suppress_health_check=[HealthCheck.differing_executors]
    )
    @given(described=tools_and_dependencies, data=st.data())
    def test_dependencies_then_tools_as_applied_then_insertions(
        self, described: list[tuple[list[str], set[int]]], data: st.DataObject
    ) -> None:
        ran: list[tuple[int, int]] = []
        relu = self.adapter.types["relu"]
        tools = [
            _Chain(relu, number, insertions, ran)
            for number, (insertions, _) in enumerate(described)
        ]
        depends = [sorted(d for d in ds if d < n) for n, (_, ds) in enumerate(described)]
        for tool, dependencies in zip(tools, depends, strict=True):
            tool.depends_on(*(tools[d] for d in dependencies))
        applied = data.draw(st.permutations(range(len(tools))))

        model = self.shared(RELU, {})
        with amanda.apply(*(tools[number] for number in applied)):
            result = model.forward({"x": POSITIVE})

        expected_runs = [
            (number, place)
            for wanted in ("insert_before_op", "insert_after_op")
            for number in _dependencies_first(applied, depends)
            for place, insertion in enumerate(described[number][0])
            if insertion == wanted
        ]
        expected = POSITIVE
        for number, place in expected_runs:
            expected = expected * 2 + (number + place)
        assert ran == expected_runs
        np.testing.assert_array_equal(result, expected)

    def test_replacement_runs_between_before_and_after(self) -> None:
        adapter = self.adapter
        ran = []

        def routine(name: str, factor: float) -> Any:
            def run(tensor: Any) -> Any:
                ran.append(name)
                return tensor * factor

            return run

        after = InsertAt(adapter, "insert_after_op", routine("after", 2), "sigmoid")
        replace = InsertAt(adapter, "replace_op", routine("replace", 4), "sigmoid")
        before = InsertAt(adapter, "insert_before_op", routine("before", 8), "sigmoid")
        with amanda.apply(after, replace, before):
            result = self.perceptron().forward({"x": X})
        assert ran == ["before", "replace", "after"]
        np.testing.assert_array_equal(result, (X @ W1 * 64) @ W2)

    def test_operator_runs_between_before_and_after(self) -> None:
        adapter = self.adapter
        before = InsertAt(adapter, "insert_before_op", lambda h: h * 2, "sigmoid")
        after = InsertAt(adapter, "insert_after_op", lambda a: a * 4, "sigmoid")
        with amanda.apply(after, before):
            result = self.perceptron().forward({"x": X})
        assert_close(result, (4 * sigmoid(X @ W1 * 2)) @ W2)

    def test_tools_of_the_outer_scope_come_first(self) -> None:
        adapter = self.adapter
        outer = InsertAt(adapter, "insert_before_op", lambda h: h * 2, "relu")
        inner = InsertAt(adapter, "insert_before_op", lambda h: h + 1, "relu")
        model = self.shared(RELU, {})
        with amanda.apply(outer), amanda.apply(inner):
            result = model.forward({"x": POSITIVE})
        np.testing.assert_array_equal(result, POSITIVE * 2 + 1)

    def test_pure_and_host_routines_keep_their_order(self) -> None:
        adapter = self.adapter
        tools = [
            InsertAt(adapter, "insert_before_op", lambda h: h * 2, "relu", pure=True),
            InsertAt(adapter, "insert_before_op", lambda h: h + 1, "relu"),
            InsertAt(adapter, "insert_before_op", lambda h: h * 4, "relu", pure=True),
        ]
        model = self.shared(RELU, {})
        with amanda.apply(*tools):
            result = model.forward({"x": POSITIVE})
        np.testing.assert_array_equal(result, (POSITIVE * 2 + 1) * 4)

    def test_a_replacement_of_two_tools_is_refused(self) -> None:
        adapter = self.adapter

        class First(InsertAt):
            pass

        class Second(InsertAt):
            pass

        tools = [cls(adapter, "replace_op", lambda h: h, "relu") for cls in (First, Second)]
        model = self.shared(RELU, {})
        with pytest.raises(amanda.ActionError, match=r"First.*Second"), amanda.apply(*tools):
            model.forward({"x": POSITIVE})
