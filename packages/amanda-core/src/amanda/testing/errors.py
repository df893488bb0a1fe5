"""These tests of S8 make routines fail, and look at what the errors say and leave behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import amanda
from amanda.driving import frameworks
from amanda.testing.adapter import assert_close
from amanda.testing.models import W1, W2, X, perceptron, sigmoid
from amanda.testing.packages import install
from amanda.testing.probes import Executions, InsertAt, Watch

if TYPE_CHECKING:
    from pathlib import Path

    from amanda.testing.adapter import Adapter, Model

FORWARD = ("insert_before_op", "insert_after_op", "replace_op")
BACKWARD = (
    "insert_before_backward_op",
    "insert_after_backward_op",
    "insert_on_grad_outputs",
    "insert_on_grad_inputs",
)


class Errors:
    """S8, errors say what went wrong and break nothing else: ``docs/semantics.md#s8-errors``."""

    adapter: Adapter

    def works(self, model: Model) -> None:
        """Assert that a perceptron runs as if nothing had happened."""
        expected = sigmoid(X @ W1) @ W2
        assert_close(model.forward({"x": X}), expected)
        model.gradients(["x", "w1", "w2"], {"x": X})

    @pytest.mark.parametrize("insertion", FORWARD + BACKWARD)
    def test_an_exception_in_a_routine_names_all_that_is_involved(self, insertion: str) -> None:
        original = KeyError("lost")

        def fails(*tensors: Any) -> None:
            raise original

        tool = InsertAt(self.adapter, insertion, fails, "sigmoid")
        model = perceptron(self.adapter)
        with pytest.raises(amanda.RoutineError) as caught, amanda.apply(tool):
            model.gradients(["w1"], {"x": X})
        error = caught.value
        assert error.__cause__ is original
        assert error.tool == "InsertAt"
        assert error.routine.endswith("fails")
        if "backward_op" not in insertion:
            assert self.adapter.types["sigmoid"] in error.operator_id
        assert error.point == insertion.removeprefix("insert_")
        for part in (error.tool, error.routine, error.operator_id, error.point, "KeyError", "lost"):
            assert part in str(error)
        self.works(model)

    def test_an_exception_in_a_pure_routine_is_a_routine_error(self) -> None:
        def fails(tensor: Any) -> None:
            raise KeyError("lost")

        tool = InsertAt(self.adapter, "insert_before_op", fails, "sigmoid", pure=True)
        model = perceptron(self.adapter)
        with pytest.raises(amanda.RoutineError, match="fails"), amanda.apply(tool):
            model.forward({"x": X})
        self.works(model)

    def test_an_exception_in_an_analysis_routine(self) -> None:
        original = KeyError("lost")

        def fails(ctx: amanda.OpContext) -> None:
            raise original

        tool = Watch(fails, [self.adapter.types["sigmoid"]])
        model = perceptron(self.adapter)
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
        model = perceptron(self.adapter)
        with amanda.apply(executions.tool([self.adapter.types["sigmoid"]]), tool):
            with pytest.raises(amanda.RoutineError):
                model.forward({"x": X})
            fail = False
            self.works(model)
        assert len(tool.analyzed) == 1
        assert len(executions.ids) == 3

    @pytest.mark.parametrize(
        ("insertion", "kind", "options"),
        [
            ("insert_before_op", "matmul", {"inputs": [2]}),
            ("insert_before_op", "matmul", {"inputs": [-3]}),
            ("insert_before_op", "matmul", {"inputs": [0, 0]}),
            ("insert_before_op", "matmul", {"inputs": ["w"]}),
            ("replace_op", "matmul", {"inputs": [2]}),
            ("insert_on_grad_outputs", "matmul", {"outputs": [1]}),
            ("insert_on_grad_inputs", "matmul", {"inputs": [2]}),
        ],
    )
    def test_an_index_that_makes_no_sense(
        self, insertion: str, kind: str, options: dict[str, Any]
    ) -> None:
        ran = []
        tool = InsertAt(self.adapter, insertion, lambda *ts: ran.append(True), kind, **options)
        model = perceptron(self.adapter)
        with pytest.raises(amanda.ActionError) as caught, amanda.apply(tool):
            model.gradients(["w1"], {"x": X})
        for part in ("InsertAt", insertion.removeprefix("insert_"), self.adapter.types[kind]):
            assert part in str(caught.value)
        assert not ran
        self.works(model)

    def test_an_output_that_does_not_exist(self) -> None:
        tool = InsertAt(self.adapter, "insert_after_op", lambda a: None, "sigmoid", outputs=[1])
        model = perceptron(self.adapter)
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
        model = perceptron(self.adapter)
        with pytest.raises(amanda.RoutineError) as caught, amanda.apply(Watch(analyze, types)):
            model.forward({"x": X})
        assert caught.value.source == sources[0]
        assert f"({sources[0]})" in str(caught.value)

    def test_an_insertion_that_the_analysis_cannot_make(self) -> None:
        types = [self.adapter.types["sigmoid"]]
        model = perceptron(self.adapter)
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
            perceptron(self.adapter).forward({"x": X})
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

        model = perceptron(self.adapter)
        missing = pytest.raises(amanda.MissingContextMapError, match="Foreign")
        with missing as caught, amanda.apply(Foreign()):
            model.forward({"x": X})
        assert "pip install amanda-contextmap" in str(caught.value)
        self.works(model)

    def test_a_tool_may_have_a_namespace_of_its_own(self) -> None:
        tool = Watch(lambda ctx: None, self.adapter.types["sigmoid"], namespace="mapping")
        with amanda.apply(tool):
            perceptron(self.adapter).forward({"x": X})
        assert len(tool.analyzed) == 1

    def test_a_namespace_that_is_misspelt_is_refused(self) -> None:
        tool = Watch(lambda ctx: None, namespace=self.adapter.vocabulary.upper() + "s")
        meant = f"did you mean namespace='{self.adapter.vocabulary}'"
        with pytest.raises(amanda.MissingContextMapError, match=meant), amanda.apply(tool):
            perceptron(self.adapter).forward({"x": X})

    def test_a_tool_for_another_backend_sees_nothing(self) -> None:
        seen: list[str] = []
        other = min({*frameworks()} - {self.adapter.vocabulary})
        tool = amanda.Tool(namespace=other)
        tool.add_inst_for_op(lambda ctx: seen.append(ctx.op.id))
        here = Watch(lambda ctx: None, [self.adapter.types["sigmoid"]])
        with amanda.apply(tool, here):
            self.works(perceptron(self.adapter))
        assert seen == []
        assert len(here.analyzed) == 1

    def test_a_tool_for_this_backend_sees_it(self) -> None:
        seen: list[str] = []
        tool = amanda.Tool(namespace=self.adapter.vocabulary)
        tool.add_inst_for_op(
            lambda ctx: seen.append(ctx.op.id), ops=[self.adapter.types["sigmoid"]]
        )
        with amanda.apply(tool):
            self.works(perceptron(self.adapter))
        assert len(seen) == 1
