"""These tests of S5 count how often analysis routines run, and what is kept of their decisions."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import amanda
from amanda.testing.adapter import assert_close
from amanda.testing.models import W1, W2, OnPerceptron, X, perceptron, sigmoid
from amanda.testing.probes import Executions, InsertAt, Watch
from amanda.testing.scopes import in_a_thread

if TYPE_CHECKING:
    from amanda.testing.adapter import Model


def _nothing(ctx: amanda.OpContext) -> None:
    pass


class _Marker:
    """A marker is something that a tool leaves in a context."""


class Caching(OnPerceptron):
    """S5, an analysis routine decides once: ``docs/semantics.md#s5-caching``."""

    def watch(self, *kinds: str, **options: Any) -> Watch:
        """Return a tool that looks at steps of these kinds and inserts nothing."""
        return Watch(_nothing, [self.adapter.types[kind] for kind in kinds], **options)

    def run(self, model: Model, times: int = 1) -> None:
        """Run a perceptron forward."""
        for _ in range(times):
            model.forward({"x": X})

    @pytest.mark.parametrize("action", [True, False], ids=["with an action", "without"])
    def test_an_operator_is_analyzed_once_in_a_scope(self, action: bool) -> None:
        types = [self.adapter.types[kind] for kind in ("matmul", "sigmoid")]
        executions = Executions()
        tool = executions.tool(types) if action else Watch(_nothing, types)
        model = self.perceptron()
        with amanda.apply(tool):
            self.run(model, times=3)
        assert len(tool.analyzed) == 3
        assert len(set(tool.analyzed)) == 3
        assert len(executions.ids) == (9 if action else 0)

    @pytest.mark.parametrize(
        "view",
        [{"backward": True}, {"gradient": True}, {"backward": True, "require_outputs": True}],
        ids=["backward", "gradient", "backward with outputs"],
    )
    def test_a_gradient_is_analyzed_once_in_a_scope(self, view: dict[str, bool]) -> None:
        tool = self.watch("matmul", "sigmoid", **view)
        model = self.perceptron()
        with amanda.apply(tool):
            model.gradients(["x", "w1", "w2"], {"x": X})
            analyzed = list(tool.analyzed)
            for _ in range(2):
                model.gradients(["x", "w1", "w2"], {"x": X})
        assert tool.analyzed == analyzed
        assert len(set(analyzed)) == 3

    def test_outputs_that_are_required_do_not_change_that(self) -> None:
        tool = self.watch("matmul", require_outputs=True)
        model = self.perceptron()
        with amanda.apply(tool):
            self.run(model, times=3)
        assert len(tool.analyzed) == 2

    def test_every_scope_analyzes_anew(self) -> None:
        tool = self.watch("matmul")
        model = self.perceptron()
        for _ in range(2):
            with amanda.apply(tool):
                self.run(model, times=2)
        assert len(tool.analyzed) == 4

    def test_coming_back_from_a_nested_scope_finds_what_was_decided(self) -> None:
        outer, inner = self.watch("matmul"), self.watch("matmul")
        model = self.perceptron()
        with amanda.apply(outer):
            self.run(model)
            with amanda.apply(inner):
                self.run(model, times=2)
            analyzed = len(outer.analyzed)
            self.run(model, times=2)
        assert len(outer.analyzed) == analyzed
        assert len(inner.analyzed) == 2

    def test_disabling_for_a_while_forgets_nothing(self) -> None:
        tool = self.watch("matmul")
        model = self.perceptron()
        with amanda.apply(tool):
            self.run(model)
            with amanda.disabled():
                self.run(model)
            self.run(model)
        assert len(tool.analyzed) == 2

    def test_invalidate_asks_that_tool_alone_again(self) -> None:
        tool, other = self.watch("matmul"), self.watch("matmul")
        model = self.perceptron()
        with amanda.apply(tool, other):
            self.run(model)
            tool.invalidate()
            self.run(model, times=2)
        assert len(tool.analyzed) == 4
        assert len(other.analyzed) == 2

    @pytest.mark.parametrize("pure", [False, True], ids=["host", "pure"])
    @pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "in another thread"])
    def test_a_new_decision_takes_the_place_of_the_old_one(
        self, elsewhere: bool, pure: bool
    ) -> None:
        factor = 2.0

        def analyze(ctx: amanda.OpContext) -> None:
            by = factor
            ctx.insert_after_op(lambda a: a * by, pure=pure)

        tool = Watch(analyze, [self.adapter.types["sigmoid"]])
        model = self.perceptron()
        plain = sigmoid(X @ W1)
        with amanda.apply(tool):
            assert_close(model.forward({"x": X}), 2 * plain @ W2)
            factor = 4.0
            assert_close(model.forward({"x": X}), 2 * plain @ W2)
            if elsewhere:
                in_a_thread(tool.invalidate)
            else:
                tool.invalidate()
            assert_close(model.forward({"x": X}), 4 * plain @ W2)
        assert len(tool.analyzed) == 2

    def test_invalidate_asks_about_gradients_again(self) -> None:
        tools = [self.watch("sigmoid", backward=True), self.watch("sigmoid", gradient=True)]
        model = self.perceptron()
        with amanda.apply(*tools):
            for _ in range(2):
                model.gradients(["w1"], {"x": X})
                for tool in tools:
                    tool.invalidate()
        assert [len(tool.analyzed) for tool in tools] == [2, 2]

    def test_clear_cache_asks_all_tools_again(self) -> None:
        tool, other = self.watch("matmul"), self.watch("sigmoid")
        model = self.perceptron()
        with amanda.apply(tool, other):
            self.run(model)
            amanda.clear_cache()
            self.run(model, times=2)
        assert len(tool.analyzed) == 4
        assert len(other.analyzed) == 2

    def test_without_the_cache_every_execution_asks(self) -> None:
        tool = self.watch("matmul")
        model = self.perceptron()
        with amanda.apply(tool), amanda.cache_disabled():
            self.run(model, times=3)
        assert len(tool.analyzed) == 6

    def test_switching_the_cache_off_and_on_in_a_scope(self) -> None:
        tool = self.watch("matmul")
        model = self.perceptron()
        with amanda.apply(tool):
            self.run(model)
            with amanda.cache_disabled():
                self.run(model, times=2)
                with amanda.cache_enabled():
                    self.run(model)
            self.run(model)
        assert len(tool.analyzed) == 2 + 2 * 2

    def test_routines_run_all_the_same_without_the_cache(self) -> None:
        tool = InsertAt(self.adapter, "insert_after_op", lambda a: a * 2, "sigmoid")
        model = self.perceptron()
        with amanda.apply(tool), amanda.cache_disabled():
            for _ in range(2):
                result = model.forward({"x": X})
                assert_close(result, 2 * sigmoid(X @ W1) @ W2)

    def test_a_context_is_a_dict_that_lives_as_long_as_its_operator(self) -> None:
        def analyze(ctx: amanda.OpContext) -> None:
            ctx["times"] = ctx.get("times", 0) + 1
            ctx.insert_before_op(lambda *tensors: counts.append(ctx["times"]))

        counts: list[int] = []
        tool = Watch(analyze, [self.adapter.types["sigmoid"]])
        model = self.perceptron()
        with amanda.apply(tool):
            for _ in range(3):
                self.run(model)
                tool.invalidate()
        assert counts == [1, 2, 3]

    def test_tools_share_the_context_also_in_a_nested_scope(self) -> None:
        seen = []
        left: list[str] = []

        def leave_once(ctx: amanda.OpContext) -> None:
            if not left:
                left.append(ctx.op.id)
                ctx["left"] = ctx.op.id

        types = [self.adapter.types["sigmoid"]]
        model = self.perceptron()
        find = Watch(lambda ctx: seen.append(ctx.get("left") == ctx.op.id), types)
        with amanda.apply(Watch(leave_once, types)):
            self.run(model)
            with amanda.apply(find):
                self.run(model)
        assert seen == [True]

    def test_a_new_scope_begins_with_empty_contexts(self) -> None:
        sizes = []

        def analyze(ctx: amanda.OpContext) -> None:
            sizes.append(len(ctx))
            ctx["mark"] = True

        model = self.perceptron()
        for _ in range(2):
            with amanda.apply(Watch(analyze, [self.adapter.types["sigmoid"]])):
                self.run(model)
        assert sizes == [0, 0]

    @pytest.mark.parametrize("gradients", [False, True], ids=["forward", "with gradients"])
    def test_what_is_kept_for_a_model_is_freed_with_it(self, gradients: bool) -> None:
        markers: list[weakref.ref[_Marker]] = []
        looked: list[bool] = []

        def look(*tensors: Any, **closed_over: Any) -> None:
            looked.append(True)

        def analyze(ctx: amanda.OpContext) -> None:
            if "marker" not in ctx:
                ctx["marker"] = _Marker()
                markers.append(weakref.ref(ctx["marker"]))
            if ctx.is_forward():
                ctx.insert_before_op(look, context=ctx, operator=ctx.op)

        types = [self.adapter.types[kind] for kind in ("matmul", "sigmoid")]
        tools = [Watch(analyze, types), Watch(analyze, types, gradient=True)]
        with amanda.apply(*tools):
            for _ in range(2):
                model = perceptron(self.adapter)
                if gradients:
                    model.gradients(["w1"], {"x": X})
                else:
                    model.forward({"x": X})
                del model
            gc.collect()
            assert len(markers) == len(looked) == 6
            assert [marker for marker in markers if marker() is not None] == []
