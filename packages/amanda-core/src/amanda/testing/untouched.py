"""S7: tools that only observe leave every bit as it was."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

import pytest

import amanda
from amanda.testing.adapter import Adapter, numbers
from amanda.testing.probes import Insert, Watch
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
INSERTIONS = (
    "insert_before_op",
    "insert_after_op",
    "insert_before_backward_op",
    "insert_after_backward_op",
    "insert_on_grad_outputs",
    "insert_on_grad_inputs",
)
KINDS = ("matmul", "add", "unstack", "sigmoid", "relu", "multiply", "select")


class Elsewhere(amanda.Driver):
    """The driver of another framework, in which nothing runs."""

    backend = vocabulary = "elsewhere"
    xp = None
    engines = 0

    def activate(self, engine: object) -> None:
        self.engines += engine is not None

    def value(self, tensor: Any) -> Any:
        raise AssertionError("it has no tensors")

    def variable(self, initial: Any, execution: object) -> Any:
        raise AssertionError("it has no operators")

    def incompatible_reason(self, original: Any, substitute: Any) -> str | None:
        raise AssertionError("it has no tensors")


class Untouched:
    """S7, what observing leaves as it was: ``docs/semantics.md#s7-untouched-results``."""

    adapter: Adapter

    @contextlib.contextmanager
    def observed(self, pure: bool) -> Iterator[None]:
        """Have tools look at everything there is and return nothing; all of them must get to."""
        types = [self.adapter.types[kind] for kind in KINDS]
        ran: set[tuple[str, str]] = set()

        def look(*tensors: Any, at: tuple[str, str]) -> None:
            ran.add(at)

        inserts: list[amanda.Tool] = [
            Insert(
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
        model = self.adapter.build(NETWORK, PARAMETERS)

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
        model = self.adapter.build(NETWORK, PARAMETERS)
        with self.observed(pure=False):
            model.gradients(["w1", "b"], INPUTS)
        for name, array in PARAMETERS.items():
            assert model.parameter(name).tobytes() == array.tobytes()

    def test_a_substituted_weight_leaves_the_parameter_alone(self) -> None:
        model = self.adapter.build(NETWORK, PARAMETERS)
        plain = model.forward(INPUTS)
        tool = Insert(self.adapter, "insert_before_op", lambda w: w * 2, "matmul", inputs=[1])
        with amanda.apply(tool):
            assert model.forward(INPUTS).tobytes() != plain.tobytes()
            model.gradients(["w1"], INPUTS)
        assert model.parameter("w1").tobytes() == PARAMETERS["w1"].tobytes()

    def test_a_driver_of_another_framework_beside_it_changes_nothing(self) -> None:
        elsewhere, executed = Elsewhere(), []
        tool = amanda.Tool(namespace=self.adapter.vocabulary)
        tool.add_inst_for_op(
            lambda ctx: ctx.insert_before_op(lambda *_: executed.append(ctx.op.type)),
            ops=[self.adapter.types["sigmoid"]],
        )
        model = self.adapter.build(NETWORK, PARAMETERS)
        plain = model.forward(INPUTS)
        amanda.register_driver(elsewhere)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", amanda.AmandaWarning)
                with amanda.apply(tool):
                    found = model.forward(INPUTS)
        finally:
            amanda.unregister_driver(elsewhere)
        assert elsewhere.engines == 0  # the tool does not speak of it
        assert executed == [self.adapter.types["sigmoid"]]
        assert found.tobytes() == plain.tobytes()
