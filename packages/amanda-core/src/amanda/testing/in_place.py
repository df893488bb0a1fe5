"""These tests of S2 and S3 are for the backends that have in-place operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import amanda
from amanda.testing.adapter import Adapter, numbers
from amanda.testing.probes import InsertAt
from amanda.testing.program import Program

if TYPE_CHECKING:
    from amanda.testing.adapter import Array

# h is an alias of a: both are what relu_ wrote
ALIASED = Program("""
    h = shift/add(x, b)
    a = act/relu_(h)
    y = join/multiply(a, h)
""")
X, B = numbers(2, 3, seed=30), numbers(3, seed=31)


class InPlace:
    """S2 and S3 hold for operators that write into one of their inputs:
    ``docs/semantics.md#s2-return-values`` and ``docs/semantics.md#s3-gradients``.
    """

    adapter: Adapter

    def aliased(self, insertion: str, routine: Any) -> tuple[Array, Array]:
        """Return the output and the gradient for x, with a routine at the in-place operator."""
        model = self.adapter.build(ALIASED, {"b": B})
        with amanda.apply(InsertAt(self.adapter, insertion, routine, "relu_")):
            return model.forward({"x": X}), model.gradients(["x"], {"x": X})["x"]

    def test_its_type_is_its_own(self) -> None:
        assert self.adapter.types["relu_"] != self.adapter.types["relu"]

    def test_observing_leaves_aliases_alone(self) -> None:
        ran: list[Any] = []
        output, gradient = self.aliased("insert_before_op", lambda h: ran.append(h.shape))
        assert len(ran) == 2
        a = np.maximum(X + B, 0)
        np.testing.assert_array_equal(output, a * a)
        np.testing.assert_array_equal(gradient, 2 * a)

    def test_a_replaced_result_is_seen_by_every_alias(self) -> None:
        output, gradient = self.aliased("insert_after_op", lambda a: a * 2 + 1)
        a = np.maximum(X + B, 0) * 2 + 1
        np.testing.assert_array_equal(output, a * a)
        np.testing.assert_array_equal(gradient, np.where(X + B > 0, 2 * a, 0))

    def test_a_substituted_input_still_updates_the_programs_tensor(self) -> None:
        output, gradient = self.aliased("insert_before_op", lambda h: h + 1)
        a = np.maximum(X + B + 1, 0)
        np.testing.assert_array_equal(output, a * a)
        np.testing.assert_array_equal(gradient, np.where(X + B + 1 > 0, 2 * a, 0))

    def test_a_replacement_is_seen_by_every_alias(self) -> None:
        output, gradient = self.aliased("replace_op", lambda h: h * 4)
        a = (X + B) * 4
        np.testing.assert_array_equal(output, a * a)
        np.testing.assert_array_equal(gradient, np.where(X + B > 0, 2 * a, 0))
