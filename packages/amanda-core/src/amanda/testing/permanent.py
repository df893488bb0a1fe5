"""These tests write what a tool makes of parameters into the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import amanda
from amanda.testing.adapter import numbers
from amanda.testing.models import MASK, W1, W2, X, perceptron
from amanda.testing.probes import InsertAt
from amanda.testing.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda.testing.adapter import Adapter, Array, Model

# Two operators share one parameter.
TIED = Program("""
    a = left/multiply(x, w)
    b = right/multiply(a, w)
    y = act/sigmoid(b)
""")
W = numbers(2, 3, seed=3)


class Permanent:
    """What a tool makes of parameters can be written into the model:
    ``docs/semantics.md#what-a-context-shows``.
    """

    adapter: Adapter

    def before(
        self,
        routine: Callable[..., Any],
        kind: str = "matmul",
        layer: str | None = "hidden",
        **options: Any,
    ) -> InsertAt:
        """Return a tool that runs a routine before operators of a kind."""
        return InsertAt(self.adapter, "insert_before_op", routine, kind, layer, **options)

    def masking(self, **options: Any) -> InsertAt:
        mask = self.adapter.tensor(MASK)
        return self.before(lambda w: w * mask, inputs=[1], **options)

    def ran(self, model: Model, *tools: amanda.Tool) -> Array:
        """Return a model's output under tools, which is not its output without them."""
        with amanda.apply(*tools):
            found = model.forward({"x": X})
        assert found.tobytes() != model.forward({"x": X}).tobytes()
        return found

    @pytest.mark.parametrize("pure", [False, True], ids=["host", "pure"])
    def test_without_the_tool_the_model_computes_what_it_did_under_it(self, pure: bool) -> None:
        model, tool = perceptron(self.adapter), self.masking(pure=pure)
        under_tool = self.ran(model, tool)
        (written,) = tool.make_permanent(model.holding_parameters())
        assert written in tool.analyzed
        assert model.parameter("w1").tobytes() == (W1 * MASK).tobytes()
        assert model.parameter("w2").tobytes() == W2.tobytes()
        assert model.forward({"x": X}).tobytes() == under_tool.tobytes()

    def test_within_the_scope_nothing_of_it_is_instrumented(self) -> None:
        model, tool = perceptron(self.adapter), self.masking()
        with amanda.apply(tool):
            under_tool = model.forward({"x": X})
            analyzed = list(tool.analyzed)
            tool.make_permanent(model.holding_parameters())
            assert tool.analyzed == analyzed
            assert model.forward({"x": X}).tobytes() == under_tool.tobytes()

    def test_it_is_made_of_what_the_parameter_is_then(self) -> None:
        model = perceptron(self.adapter)
        tool, doubling = self.masking(), self.before(lambda w: w * 2, inputs=[1])
        under_both = self.ran(model, tool, doubling)
        for each in (tool, doubling):
            each.make_permanent(model.holding_parameters())
        assert model.parameter("w1").tobytes() == (W1 * MASK * 2).tobytes()
        assert model.forward({"x": X}).tobytes() == under_both.tobytes()

    def test_a_parameter_of_two_operators_is_written_once(self) -> None:
        model = self.adapter.build(TIED, {"w": W})
        tool = self.before(lambda w: w * 2, "multiply", None, inputs=[1])
        under_tool = self.ran(model, tool)
        assert len(tool.make_permanent(model.holding_parameters())) == 2
        assert model.parameter("w").tobytes() == (W * 2).tobytes()
        assert model.forward({"x": X}).tobytes() == under_tool.tobytes()

    def test_a_parameter_that_another_operator_is_given_as_it_is_cannot_be_replaced(self) -> None:
        model = self.adapter.build(TIED, {"w": W})
        tool = self.before(lambda w: w * 2, "multiply", "left", inputs=[1])
        self.ran(model, tool)
        with pytest.raises(amanda.UnsupportedError, match=r"another operator is given it"):
            tool.make_permanent(model.holding_parameters())
        assert model.parameter("w").tobytes() == W.tobytes()

    def test_what_depends_on_the_input_of_the_model_is_refused(self) -> None:
        for tool in (
            self.before(lambda x, w: (x, w * 2)),
            self.before(lambda w, x: w * 2, inputs=[1], with_inputs=[0]),
            InsertAt(self.adapter, "insert_after_op", lambda y: y * 2, "sigmoid"),
        ):
            model = perceptron(self.adapter)
            self.ran(model, tool)
            with pytest.raises(amanda.UnsupportedError, match=r"(hidden|act).*depends on more"):
                tool.make_permanent(model.holding_parameters())
            assert model.parameter("w1").tobytes() == W1.tobytes()

    def test_what_is_something_else_each_time_is_refused(self) -> None:
        random = np.random.default_rng(0)

        def noisy(w: Any) -> Any:
            noise = random.standard_normal(W1.shape).astype(W1.dtype)
            return self.adapter.tensor(self.adapter.array(w) + noise)

        model, tool = perceptron(self.adapter), self.before(noisy, inputs=[1])
        self.ran(model, tool)
        with pytest.raises(amanda.UnsupportedError, match=r"noisy .*hidden.* when it runs again"):
            tool.make_permanent(model.holding_parameters())
        assert model.parameter("w1").tobytes() == W1.tobytes()

    def test_a_model_that_did_not_run_under_the_tool_is_named(self) -> None:
        other, tool = perceptron(self.adapter), self.masking()
        kept = perceptron(self.adapter)
        self.ran(kept, tool)
        with pytest.raises(amanda.AmandaError, match="has replaced no parameter"):
            tool.make_permanent(other.holding_parameters())
        assert other.parameter("w1").tobytes() == W1.tobytes()

    def test_parameters_are_looked_at_between_executions(self) -> None:
        seen: list[bytes] = []

        def look(w: Any) -> Any:
            seen.append(self.adapter.array(w).tobytes())
            return w * 2

        model = perceptron(self.adapter)
        tool = self.before(look, inputs=[1])
        self.ran(model, tool)
        assert len(seen) == 1
        tool.run_on_parameters(model.holding_parameters())
        assert seen == [W1.tobytes()] * 2
        assert model.parameter("w1").tobytes() == W1.tobytes()
