"""These tests of S2 look at what becomes of what a routine returns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import amanda
from amanda.testing.adapter import assert_close, numbers
from amanda.testing.cases import case
from amanda.testing.models import W1, W2, OnPerceptron, X, sigmoid
from amanda.testing.probes import InsertAt, host_and_pure
from amanda.testing.program import Program

if TYPE_CHECKING:
    from amanda.testing.adapter import Array

PRODUCT = Program("y = mix/multiply(x, z)")
HALVES = Program("""
    top, bottom = cut/unstack(x)
    half = shift/add(top, shift)
    y = join/multiply(half, bottom)
""")
A, B = numbers(2, 3, seed=3), numbers(2, 3, seed=4)


class ReturnValues(OnPerceptron):
    """S2, what routines return replaces tensors: ``docs/semantics.md#s2-return-values``."""

    def product(self, routine: Any, insertion: str = "insert_before_op", **options: Any) -> Array:
        """Compute ``A * B``, elementwise, with a routine inserted at the multiplication."""
        tool = InsertAt(self.adapter, insertion, routine, "multiply", **options)
        model = self.shared(PRODUCT, {})
        with amanda.apply(tool):
            return model.forward({"x": A, "z": B})

    @host_and_pure
    def test_none_leaves_the_tensors_as_they_are(self, pure: bool) -> None:
        for insertion in ("insert_before_op", "insert_after_op"):
            given: list[int] = []
            result = self.product(
                lambda *tensors, given=given: given.append(len(tensors)), insertion, pure=pure
            )
            np.testing.assert_array_equal(result, A * B)
            assert set(given) == {2 if insertion == "insert_before_op" else 1}

    @host_and_pure
    def test_one_tensor_replaces_the_one_selected(self, pure: bool) -> None:
        result = self.product(lambda z: z + 1, inputs=[1], pure=pure)
        np.testing.assert_array_equal(result, A * (B + 1))

    @host_and_pure
    def test_one_tensor_replaces_the_only_one(self, pure: bool) -> None:
        result = self.product(lambda y: y + 1, "insert_after_op", pure=pure)
        np.testing.assert_array_equal(result, A * B + 1)

    @host_and_pure
    @pytest.mark.parametrize("sequence", [tuple, list])
    def test_a_sequence_replaces_all_that_are_selected(self, sequence: Any, pure: bool) -> None:
        result = self.product(lambda x, z: sequence([x + 1, z * 2]), pure=pure)
        np.testing.assert_array_equal(result, (A + 1) * (B * 2))

    @host_and_pure
    def test_the_index_list_gives_the_order(self, pure: bool) -> None:
        result = self.product(lambda z, x: (z * 2, x + 1), inputs=[1, 0], pure=pure)
        np.testing.assert_array_equal(result, (A + 1) * (B * 2))

    @host_and_pure
    def test_none_in_a_sequence_keeps_that_tensor(self, pure: bool) -> None:
        result = self.product(lambda x, z: (None, z + 1), pure=pure)
        np.testing.assert_array_equal(result, A * (B + 1))
        result = self.product(lambda x, z: [x + 1, None], pure=pure)
        np.testing.assert_array_equal(result, (A + 1) * B)

    def test_negative_indices_count_from_the_end(self) -> None:
        result = self.product(lambda z: z + 1, inputs=[-1])
        np.testing.assert_array_equal(result, A * (B + 1))

    @host_and_pure
    def test_keyword_arguments_reach_the_routine(self, pure: bool) -> None:
        result = self.product(lambda z, by: z + by, inputs=[1], pure=pure, by=2)
        np.testing.assert_array_equal(result, A * (B + 2))

    @host_and_pure
    def test_outputs_are_replaced_one_by_one(self, pure: bool) -> None:
        adapter = self.adapter
        x, shift = numbers(2, 3, seed=5), numbers(3, seed=6)
        cases: list[tuple[Any, list[int] | None, Array]] = [
            (lambda bottom: bottom * 2, [1], (x[0] + shift) * x[1] * 2),
            (lambda top, bottom: (top * 2, None), None, (x[0] * 2 + shift) * x[1]),
            (lambda top, bottom: (top * 2, bottom * 4), None, (x[0] * 2 + shift) * x[1] * 4),
        ]
        for routine, outputs, expected in cases:
            with case(outputs, expected):
                tool = InsertAt(
                    adapter, "insert_after_op", routine, "unstack", pure=pure, outputs=outputs
                )
                model = self.shared(HALVES, {"shift": shift})
                with amanda.apply(tool):
                    result = model.forward({"x": x})
                np.testing.assert_array_equal(result, expected)

    @host_and_pure
    def test_every_consumer_of_an_output_sees_its_substitute(self, pure: bool) -> None:
        adapter = self.adapter
        program = Program("""
            a = act/relu(x)
            b = left/add(a, x)
            y = right/multiply(a, b)
        """)
        tool = InsertAt(adapter, "insert_after_op", lambda a: a + 1, "relu", pure=pure)
        with amanda.apply(tool):
            result = adapter.build(program, {}).forward({"x": A})
        substitute = np.maximum(A, 0) + 1
        np.testing.assert_array_equal(result, substitute * (substitute + A))

    @host_and_pure
    def test_other_consumers_of_an_input_see_the_original(self, pure: bool) -> None:
        adapter = self.adapter
        program = Program("""
            a = act/relu(x)
            y = sum/add(a, x)
        """)
        tool = InsertAt(adapter, "insert_before_op", lambda x: x + 1, "relu", pure=pure)
        with amanda.apply(tool):
            result = adapter.build(program, {}).forward({"x": A})
        np.testing.assert_array_equal(result, np.maximum(A + 1, 0) + A)

    @host_and_pure
    def test_a_replacement_gives_the_outputs(self, pure: bool) -> None:
        result = self.product(lambda x, z: x + z, "replace_op", pure=pure)
        np.testing.assert_array_equal(result, A + B)

    @host_and_pure
    def test_a_replacement_is_given_the_selected_inputs(self, pure: bool) -> None:
        result = self.product(lambda z: z * 2, "replace_op", inputs=[1], pure=pure)
        np.testing.assert_array_equal(result, B * 2)

    @host_and_pure
    def test_a_replacement_gives_every_output(self, pure: bool) -> None:
        adapter = self.adapter
        x, shift = numbers(2, 3, seed=5), numbers(3, seed=6)
        tool = InsertAt(adapter, "replace_op", lambda x: (x[1] * 2, x[0] * 4), "unstack", pure=pure)
        with amanda.apply(tool):
            result = adapter.build(HALVES, {"shift": shift}).forward({"x": x})
        np.testing.assert_array_equal(result, (x[1] * 2 + shift) * x[0] * 4)

    @host_and_pure
    @pytest.mark.parametrize(
        ("insertion", "returned", "expected"),
        [
            ("insert_before_op", 1, 2),
            ("insert_before_op", 3, 2),
            ("insert_after_op", 2, 1),
            ("replace_op", 2, 1),
        ],
    )
    def test_the_wrong_number_is_an_error(
        self, insertion: str, returned: int, expected: int, pure: bool
    ) -> None:
        def wrong(*tensors: Any) -> Any:
            return (tensors[0],) * returned

        with pytest.raises(amanda.RoutineError) as caught:
            self.product(wrong, insertion, pure=pure)
        error = caught.value
        assert error.tool == "InsertAt"
        assert error.routine.endswith("wrong")
        assert self.adapter.types["multiply"] in error.operator_id
        assert error.point == insertion.removeprefix("insert_")
        for part in (error.tool, error.routine, error.operator_id):
            assert part in str(error)
        assert re.search(rf"\b{expected}\b.*\b{returned}\b", str(error))

    @host_and_pure
    def test_one_tensor_for_two_selected_is_an_error(self, pure: bool) -> None:
        with pytest.raises(amanda.RoutineError, match=r"\b2\b.*\b1\b"):
            self.product(lambda x, z: x, pure=pure)

    @pytest.mark.parametrize("insertion", ["insert_before_op", "insert_after_op", "replace_op"])
    def test_another_dtype_is_an_error_never_a_cast(self, insertion: str) -> None:
        def widen(tensor: Any) -> Any:
            return self.adapter.tensor(self.adapter.array(tensor).astype(np.float64))

        tool = InsertAt(self.adapter, insertion, widen, "sigmoid")
        model = self.perceptron()
        with pytest.raises(amanda.RoutineError, match="float64"), amanda.apply(tool):
            model.gradients(["w1"], {"x": X})

    def test_what_is_no_tensor_is_an_error(self) -> None:
        with pytest.raises(amanda.RoutineError, match="InsertAt"):
            self.product(lambda z: "nonsense", inputs=[1])

    def test_the_gradients_of_substitutes_follow_the_same_rules(self) -> None:
        adapter = self.adapter
        for routine in (lambda g: (g, g), lambda g: ()):
            tool = InsertAt(adapter, "insert_on_grad_outputs", routine, "sigmoid")
            with pytest.raises(amanda.RoutineError, match="on_grad_outputs"), amanda.apply(tool):
                self.perceptron().gradients(["w1"], {"x": X})

    def test_a_model_runs_as_before_after_an_error(self) -> None:
        model = self.perceptron()
        tool = InsertAt(self.adapter, "insert_after_op", lambda a: (a, a), "sigmoid")
        with pytest.raises(amanda.RoutineError), amanda.apply(tool):
            model.forward({"x": X})
        assert_close(model.forward({"x": X}), sigmoid(X @ W1) @ W2)
