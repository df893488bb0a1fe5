"""S7: tools that only observe leave every bit as it was."""

from __future__ import annotations

from typing import Any

import pytest

import amanda
from amanda.testing.adapter import Adapter, numbers
from amanda.testing.probes import Insert, Watch
from amanda.testing.program import Program

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
    "x": numbers(2, 3, 5, seed=1) / 3,
    "mask": numbers(3, 4, seed=2) > 0,
}
KINDS = ("matmul", "add", "unstack", "sigmoid", "relu", "multiply", "select")


def _look(*tensors: Any) -> None:
    pass


class Untouched:
    """S7."""

    adapter: Adapter

    def observers(self, pure: bool) -> list[amanda.Tool]:
        """Tools that look at everything there is and return nothing."""
        types = [self.adapter.types[kind] for kind in KINDS]
        inserts: list[amanda.Tool] = [
            Insert(self.adapter, insertion, _look, kind, pure=pure)
            for kind in KINDS
            for insertion in (
                "insert_before_op",
                "insert_after_op",
                "insert_before_backward_op",
                "insert_after_backward_op",
                "insert_on_grad_outputs",
                "insert_on_grad_inputs",
            )
        ]
        inserts.append(Watch(lambda ctx: ctx.outputs, types, require_outputs=True))
        inserts.append(Watch(lambda ctx: ctx.grad_inputs, types, gradient=True))
        return inserts

    @pytest.mark.parametrize("pure", [False, True], ids=["host", "pure"])
    def test_outputs_and_gradients_are_bit_identical(self, pure: bool) -> None:
        model = self.adapter.build(NETWORK, PARAMETERS)

        def results() -> dict[str, bytes]:
            found = {"output": model.forward(INPUTS)}
            found |= model.gradients(["x", "w1", "b"], INPUTS)
            return {name: array.tobytes() for name, array in found.items()}

        plain = results()
        with amanda.apply(*self.observers(pure)):
            first, second = results(), results()
        assert first == plain
        assert second == plain
        assert results() == plain

    def test_parameters_are_as_they_were(self) -> None:
        model = self.adapter.build(NETWORK, PARAMETERS)
        with amanda.apply(*self.observers(pure=False)):
            model.gradients(["w1", "b"], INPUTS)
        for name, array in PARAMETERS.items():
            assert model.parameter(name).tobytes() == array.tobytes()

    def test_a_substituted_weight_leaves_the_parameter_alone(self) -> None:
        model = self.adapter.build(NETWORK, PARAMETERS)
        tool = Insert(self.adapter, "insert_before_op", lambda w: w * 2, "matmul", inputs=[1])
        with amanda.apply(tool):
            model.gradients(["w1"], INPUTS)
        assert model.parameter("w1").tobytes() == PARAMETERS["w1"].tobytes()
