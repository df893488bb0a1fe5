"""These tests of S7 have tools look at everything, and compare bits."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

import amanda
from amanda.testing.adapter import numbers
from amanda.testing.models import Sharing
from amanda.testing.probes import INSERTIONS, InsertAt, Watch
from amanda.testing.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

NETWORK = Program("""
    h = hidden/matmul(x, w1)
    s = shift/add(h, b)
    top, bottom = cut/unstack(s)
    a = act/sigmoid(top)
    c = gate/relu(bottom)
    g = mix/multiply(a, c)
    p = choose/select(mask, g, a)
    y = weigh/multiply(p, p)
""")
PARAMETERS = {"w1": numbers(5, 4) / 3, "b": numbers(4) / 7}
INPUTS = {
    "x": numbers(2, 5, seed=1) / 3,
    "mask": numbers(4, seed=2) > 0,
}
KINDS = ("matmul", "add", "unstack", "sigmoid", "relu", "multiply", "select")


class Untouched(Sharing):
    """S7, observing leaves every bit as it was: ``docs/semantics.md#s7-untouched-results``."""

    @contextlib.contextmanager
    def observed(self, pure: bool) -> Iterator[None]:
        """Have tools look at everything there is and return nothing, and assert that all get to."""
        types = [self.adapter.types[kind] for kind in KINDS]
        ran: set[tuple[str, str]] = set()

        def look(*tensors: Any, at: tuple[str, str]) -> None:
            ran.add(at)

        inserts: list[amanda.Tool] = [
            InsertAt(
                self.adapter,
                insertion,
                look,
                kind,
                pure=pure,
                at=(insertion, kind),
            )
            for kind in KINDS
            for insertion in INSERTIONS
        ]
        outputs = Watch(lambda ctx: ctx.outputs, types, require_outputs=True)
        gradients = Watch(lambda ctx: ctx.grad_inputs, types, gradient=True)
        with amanda.apply(*inserts, outputs, gradients):
            yield
        assert ran == {(insertion, kind) for kind in KINDS for insertion in INSERTIONS}
        assert len(outputs.analyzed) == len(gradients.analyzed) == len(NETWORK.steps)

    @pytest.mark.parametrize("pure", [False, True], ids=["host", "pure"])
    def test_outputs_and_gradients_are_bit_identical(self, pure: bool) -> None:
        model = self.shared(NETWORK, PARAMETERS)

        def results() -> dict[str, bytes]:
            found = {"output": model.forward(INPUTS)}
            found |= model.gradients(["x", "w1", "b"], INPUTS)
            return {name: array.tobytes() for name, array in found.items()}

        plain = results()
        with self.observed(pure):
            first, second = results(), results()
        assert first == plain
        assert second == plain
        assert results() == plain

    def test_parameters_are_as_they_were(self) -> None:
        model = self.shared(NETWORK, PARAMETERS)
        with self.observed(pure=False):
            model.gradients(["w1", "b"], INPUTS)
        for name, array in PARAMETERS.items():
            assert model.parameter(name).tobytes() == array.tobytes()

    def test_a_substituted_weight_leaves_the_parameter_alone(self) -> None:
        model = self.shared(NETWORK, PARAMETERS)
        plain = model.forward(INPUTS)
        tool = InsertAt(self.adapter, "insert_before_op", lambda w: w * 2, "matmul", inputs=[1])
        with amanda.apply(tool):
            assert model.forward(INPUTS).tobytes() != plain.tobytes()
            model.gradients(["w1"], INPUTS)
        assert model.parameter("w1").tobytes() == PARAMETERS["w1"].tobytes()
