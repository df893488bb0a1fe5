"""These tests of S8 make routines fail, and look at what the errors say and leave behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import amanda
from amanda.driving import frameworks
from amanda.testing.adapter import assert_close
from amanda.testing.cases import case
from amanda.testing.models import W1, W2, OnPerceptron, X, plain_gradients, sigmoid
from amanda.testing.packages import install
from amanda.testing.probes import Executions, InsertAt, Watch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from amanda.testing.adapter import Model

FORWARD = ("insert_before_op", "insert_after_op", "replace_op")
BACKWARD = (
    "insert_before_backward_op",
    "insert_after_backward_op",
    "insert_on_grad_outputs",
    "insert_on_grad_inputs",
)


class Errors(OnPerceptron):
    """S8, errors say what went wrong and break nothing else: ``docs/semantics.md#s8-errors``."""

    def works(self, model: Model) -> None:
        """Assert that a perceptron runs as if nothing had happened."""
        expected = sigmoid(X @ W1) @ W2
        assert_close(model.forward({"x": X}), expected)
        assert_close(model.gradients(["w1"], {"x": X})["w1"], plain_gradients().w1)

    @pytest.mark.parametrize("insertions", [FORWARD, BACKWARD], ids=["forward", "backward"])
    def test_an_exception_in_a_routine_names_all_that_is_involved(
        self, insertions: Sequence[str]
    ) -> None:
        original = KeyError("lost")

        def fails(*tensors: Any) -> None:
            raise original

        model = self.perceptron()
        for insertion in insertions:
            with case(insertion):
                tool = InsertAt(self.adapter, insertion, fails, "sigmoid")
                with pytest.raises(amanda.RoutineError) as caught, amanda.apply(tool):
                    model.gradients(["w1"], {"x": X})
                error = caught.value
                assert error.__cause__ is original
                assert error.tool == "InsertAt"
                assert error.routine.endswith("fails")
                if "backward_op" not in insertion:
                    assert self.adapter.types["sigmoid"] in error.operator_id
                assert error.point == insertion.removeprefix("insert_")
                named = (
                    error.tool,
                    error.routine,
                    error.operator_id,
                    error.point,
                    "KeyError",
                    "lost",
                )
                for part in named:
                    assert part in str(error)
                self.works(model)

    def test_an_exception_in_a_pure_routine_is_a_routine_error(self) -> None:
        def fails(tensor: Any) -> None:
            raise KeyError("lost")

        tool = InsertAt(self.adapter, "insert_before_op", fails, "sigmoid", pure=True)
        model = self.perceptron()
        with pytest.raises(amanda.RoutineError, match="fails"), amanda.apply(tool):
            model.forward({"x": X})
        self.works(model)

    def test_an_exception_in_an_analysis_routine(self) -> None:
        original = KeyError("lost")

        def fails(ctx: amanda.OpContext) -> None:
            raise original

        tool = Watch(fails, [self.adapter.types["sigmoid"]])
        model = self.perceptron()
        with pytest.raises(amanda.RoutineError) as caught, amanda.apply(tool):
            model.forward({"x": X})
        assert caught.value.__cause__ is original
        assert caught.value.point == "analysis"
        self.works(model)

    def test_the_scope_goes_on_after_an_exception(self) -> None:
        fail = True

        def sometimes(tensor: Any) -> None:
            if fail:
                raise KeyError("lost")

        executions = Executions()
        tool = InsertAt(self.adapter, "insert_before_op", sometimes, "sigmoid")
        model = self.perceptron()
        with amanda.apply(executions.tool([self.adapter.types["sigmoid"]]), tool):
            with pytest.raises(amanda.RoutineError):
                model.forward({"x": X})
            fail = False
            self.works(model)
        assert len(tool.analyzed) == 1
        assert len(executions.ids) == 3

    def test_an_index_that_makes_no_sense(self) -> None:
        ran: list[bool] = []
        matmul = self.adapter.types["matmul"]
        model = self.perceptron()
        senseless: list[tuple[str, dict[str, Any]]] = [
            ("insert_before_op", {"inputs": [2]}),
            ("insert_before_op", {"inputs": [-3]}),
            ("insert_before_op", {"inputs": [0, 0]}),
            ("insert_before_op", {"inputs": ["w"]}),
            ("replace_op", {"inputs": [2]}),
            ("insert_on_grad_outputs", {"outputs": [1]}),
            ("insert_on_grad_inputs", {"inputs": [2]}),
        ]
        for insertion, options in senseless:
            with case(insertion, options):
                tool = InsertAt(
                    self.adapter, insertion, lambda *_: ran.append(True), "matmul", **options
                )
                with pytest.raises(amanda.ActionError) as caught, amanda.apply(tool):
                    model.gradients(["w1"], {"x": X})
                for part in ("InsertAt", insertion.removeprefix("insert_"), matmul):
                    assert part in str(caught.value)
                assert not ran
                self.works(model)

    def test_an_output_that_does_not_exist(self) -> None:
        tool = InsertAt(self.adapter, "insert_after_op", lambda a: None, "sigmoid", outputs=[1])
        model = self.perceptron()
        # before the operator has run, an eager backend does not know how many there are
        with pytest.raises((amanda.ActionError, amanda.RoutineError)), amanda.apply(tool):
            model.forward({"x": X})
        self.works(model)

    def test_an_error_names_the_line_of_the_program(self) -> None:
        def failing(*tensors: Any) -> None:
            raise KeyError

        sources = []

        def analyze(ctx: amanda.OpContext) -> None:
            sources.append(ctx.op.source)
            ctx.insert_before_op(failing)

        types = [self.adapter.types["sigmoid"]]
        model = self.perceptron()
        with pytest.raises(amanda.RoutineError) as caught, amanda.apply(Watch(analyze, types)):
            model.forward({"x": X})
        assert caught.value.source == sources[0]
        assert f"({sources[0]})" in str(caught.value)

    def test_an_insertion_that_the_analysis_cannot_make(self) -> None:
        types = [self.adapter.types["sigmoid"]]
        model = self.perceptron()
        views: list[tuple[str, dict[str, Any], str]] = [
            ("insert_on_grad_outputs", {}, "add_inst_for_gradient"),
            ("insert_before_backward_op", {}, "backward=True"),
            ("insert_before_op", {"gradient": True}, "add_inst_for_op"),
            ("insert_after_op", {"backward": True}, "add_inst_for_op"),
        ]
        for insertion, view, way_out in views:

            def analyze(ctx: amanda.OpContext, insertion: str = insertion) -> None:
                getattr(ctx, insertion)(lambda *tensors: None)

            tool = Watch(analyze, types, **view)
            with pytest.raises(amanda.UnsupportedError, match=way_out), amanda.apply(tool):
                model.gradients(["w1"], {"x": X})
        self.works(model)

    def test_gradients_are_not_to_be_seen_from_the_forward_side(self) -> None:
        def analyze(ctx: amanda.OpContext) -> None:
            for name in ("grad_outputs", "grad_inputs", "outputs"):
                with pytest.raises(amanda.ValueUnavailableError, match=ctx.op.type):
                    getattr(ctx, name)

        tool = Watch(analyze, [self.adapter.types["sigmoid"]])
        with amanda.apply(tool):
            self.perceptron().forward({"x": X})
        assert len(tool.analyzed) == 1

    def test_a_missing_context_map_names_the_package(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        words = "words that others have a map to"
        announced = f"[amanda.context_maps]\na backend that is not here:{words} = nowhere:map\n"
        install(tmp_path, "words", entry_points=announced)
        monkeypatch.syspath_prepend(tmp_path)

        class Foreign(amanda.Tool):
            def __init__(self) -> None:
                super().__init__(namespace=words)
                self.add_inst_for_op(lambda ctx: None)

        model = self.perceptron()
        missing = pytest.raises(amanda.MissingContextMapError, match="Foreign")
        with missing as caught, amanda.apply(Foreign()):
            model.forward({"x": X})
        assert "pip install amanda-contextmap" in str(caught.value)
        self.works(model)

    def test_a_tool_may_have_a_namespace_of_its_own(self) -> None:
        tool = Watch(lambda ctx: None, self.adapter.types["sigmoid"], namespace="mapping")
        with amanda.apply(tool):
            self.perceptron().forward({"x": X})
        assert len(tool.analyzed) == 1

    def test_a_namespace_that_is_misspelt_is_refused(self) -> None:
        tool = Watch(lambda ctx: None, namespace=self.adapter.vocabulary.upper() + "s")
        meant = f"did you mean namespace='{self.adapter.vocabulary}'"
        with pytest.raises(amanda.MissingContextMapError, match=meant), amanda.apply(tool):
            self.perceptron().forward({"x": X})

    def test_a_tool_for_another_backend_sees_nothing(self) -> None:
        seen: list[str] = []
        other = min({*frameworks()} - {self.adapter.vocabulary})
        tool = amanda.Tool(namespace=other)
        tool.add_inst_for_op(lambda ctx: seen.append(ctx.op.id))
        here = Watch(lambda ctx: None, [self.adapter.types["sigmoid"]])
        with amanda.apply(tool, here):
            self.works(self.perceptron())
        assert seen == []
        assert len(here.analyzed) == 1

    def test_a_tool_for_this_backend_sees_it(self) -> None:
        seen: list[str] = []
        tool = amanda.Tool(namespace=self.adapter.vocabulary)
        tool.add_inst_for_op(
            lambda ctx: seen.append(ctx.op.id), ops=[self.adapter.types["sigmoid"]]
        )
        with amanda.apply(tool):
            self.works(self.perceptron())
        assert len(seen) == 1
