"""Types that tools select: in other words for them, and those under which nothing ran."""

import warnings

import amanda
import pytest
from amanda import AmandaWarning, Tool
from amanda.driving import alike
from fake_backend import FakeDriver, Noting, engine, execution, operator


class Dialects(FakeDriver):
    """Knows its types by a prefix too, and what is meant by a capital letter."""

    def canonical_type(self, type):
        return type.removeprefix("fake::")

    def is_backward_type(self, type):
        return type.endswith("Backward0")

    def alike(self, types):
        known = frozenset({"conv2d", "relu", "relu_"})
        return frozenset().union(*(alike(type, known) for type in types))


class TestOtherWords:
    @pytest.mark.parametrize("view", ["forward", "gradient", "backward"])
    def test_are_those_of_the_backend(self, view):
        tool = Tool()
        seen = []
        if view == "gradient":
            tool.add_inst_for_gradient(lambda ctx: seen.append(ctx.op.type), ops=["fake::relu"])
        else:
            backward = view == "backward"
            tool.add_inst_for_op(
                lambda ctx: seen.append(ctx.op.type), backward=backward, ops=["fake::relu"]
            )
        found = engine(tool, driver=Dialects())
        shown = execution(operator("relu"), grad_outputs=[1])
        found.analyze(shown)
        if view == "gradient":
            found.gradient_plan(shown)
        if view == "backward":
            shown.backward_operator = operator("relu_backward")
            found.backward_plan(shown)
        assert seen == ["relu"]

    def test_hide_nothing_inside_of_what_is_wanted(self):
        assert engine(Noting(["fake::relu"]), driver=Dialects()).inside("relu") is None

    @pytest.mark.parametrize(
        ("ops", "only", "asked"),
        [
            (None, ["fake::relu"], ["a/relu"]),
            (["relu", "conv2d"], ["fake::relu"], ["a/relu"]),
            (["fake::relu"], ["relu"], ["a/relu"]),
            (["conv2d"], ["relu"], []),
        ],
    )
    def test_restrict_what_a_tool_looks_at(self, ops, only, asked):
        tool = Noting(ops)
        tool.restrict(only)
        found = engine(tool, driver=Dialects())
        for type in ("relu", "conv2d"):
            found.analyze(execution(operator(type)))
        assert tool.asked == asked

    def test_restrict_what_is_registered_later_too(self):
        tool = Tool()
        tool.restrict(["fake::relu"])
        seen = []
        tool.add_inst_for_op(lambda ctx: seen.append(ctx.op.type))
        found = engine(tool, driver=Dialects())
        for type in ("relu", "conv2d"):
            found.analyze(execution(operator(type)))
        assert seen == ["relu"]


def test_what_a_misspelt_type_may_mean_is_watched():
    assert engine(Noting(["Relu"]), driver=Dialects()).wanted == {"Relu", "relu", "relu_"}


def test_a_candidate_that_the_backend_lacks_is_not_taken_for_misspelt():
    class Listing(Noting):
        lists_candidates = True

    assert engine(Listing(["Relu", "add"]), driver=Dialects()).wanted == {"Relu", "add"}


@pytest.mark.parametrize(
    ("type", "meant"),
    [
        ("LayerNorm", {"layer_norm"}),
        ("ReLU", {"relu", "relu_"}),
        ("conv", {"conv2d"}),
        ("softmax", set()),
    ],
)
def test_types_that_are_alike(type, meant):
    assert alike(type, frozenset({"layer_norm", "relu", "relu_", "conv2d", "add"})) == meant


@pytest.fixture
def backend():
    """Has the active tools see operators of types that run."""

    class Driver(Dialects):
        def activate(self, engine):
            self.engine = engine

        def run(self, *types):
            for type in types:
                if self.engine is not None and self.engine.wants(type):
                    self.engine.analyze(execution(operator(type)))

    driver = Driver()
    amanda.register_driver(driver)
    yield driver
    amanda.unregister_driver(driver)


def warned(*tools, run, times=1):
    """What is warned of when a scope of these tools is left."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            with amanda.apply(*tools):
                run()
    assert all(warning.category is AmandaWarning for warning in caught)
    return [str(warning.message) for warning in caught]


class TestTypesThatNeverRan:
    def test_are_named_with_the_nearest_that_did(self, backend):
        (warning,) = warned(Noting(["Relu"]), run=lambda: backend.run("relu"))
        assert "'Relu' of Noting, did you mean 'relu'?" in warning

    def test_of_several_tools_are_one_warning(self, backend):
        (warning,) = warned(
            Noting(["Relu", "Conv2D"]),
            Noting(["Relu"]),
            run=lambda: backend.run("relu", "conv2d"),
        )
        assert warning.count("'Relu'") == warning.count("'Conv2D'") == 1

    def test_are_named_without_a_guess_where_others_ran(self, backend):
        (warning,) = warned(Noting(["softmax"]), Noting(), run=lambda: backend.run("add"))
        assert warning.endswith("'softmax' of Noting")

    def test_beside_others_are_named_if_they_are_spelled_like_one_that_did(self, backend):
        tool = Noting(["conv2d", "Relu", "softmax"])
        (warning,) = warned(tool, run=lambda: backend.run("conv2d", "relu"))
        assert "'Relu' of Noting, did you mean 'relu'?" in warning
        assert "softmax" not in warning

    def test_are_not_named_where_the_tool_has_the_other_spelling_too(self, backend):
        assert warned(Noting(["Relu", "relu"]), run=lambda: backend.run("relu")) == []

    def test_are_not_named_where_nothing_ran(self, backend):
        assert warned(Noting(["Relu"]), run=lambda: None) == []

    def test_are_not_named_of_a_tool_that_lists_candidates(self, backend):
        class Listing(Noting):
            lists_candidates = True

        assert warned(Listing(["Relu"]), run=lambda: backend.run("relu")) == []

    def test_are_named_of_any_tool_that_the_user_restricts(self, backend):
        class Listing(Noting):
            lists_candidates = True

        tool = Listing(["relu"])
        tool.restrict(["Relu"])
        (warning,) = warned(tool, Noting(), run=lambda: backend.run("relu"))
        assert "'Relu' of Listing" in warning

    def test_beside_others_are_named_if_the_user_restricts_the_tool_to_them(self, backend):
        tool = Noting()
        tool.restrict(["conv2d", "softmax", "Relu"])
        (warning,) = warned(tool, Noting(), run=lambda: backend.run("conv2d", "relu"))
        assert "'softmax' of Noting" in warning
        assert "'Relu' of Noting, did you mean 'relu'?" in warning
        assert "conv2d" not in warning

    def test_are_named_once_however_often_the_tool_is_applied(self, backend):
        assert len(warned(Noting(["Relu"]), run=lambda: backend.run("relu"), times=3)) == 1

    def test_in_an_outer_scope_may_run_in_an_inner_one(self, backend):
        def run():
            with amanda.apply(Noting()):
                backend.run("relu", "add")

        assert warned(Noting(["relu"]), run=run) == []

    def test_are_named_when_the_scope_of_their_tool_is_left(self, backend):
        inner = []

        def run():
            inner.extend(warned(Noting(["conv2d"]), run=lambda: backend.run("conv2d", "relu")))

        (warning,) = warned(Noting(["Relu"]), run=run)
        assert "'Relu'" in warning
        assert inner == []

    def test_are_not_named_when_an_exception_leaves_the_scope(self, backend):
        def fail():
            backend.run("relu")
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            assert warned(Noting(["Relu"]), run=fail) == []

    def test_in_another_vocabulary_than_the_backends_are_not_named(self, backend):
        tool = Tool(namespace="torch")
        tool.add_inst_for_op(lambda ctx: None, ops=["Relu"])
        assert warned(tool, Noting(), run=lambda: backend.run("relu")) == []


class TestTypesOfBackwardOperators:
    def tool(self, view, ops):
        tool = Tool()
        if view == "gradient":
            tool.add_inst_for_gradient(lambda ctx: None, ops=ops)
        else:
            tool.add_inst_for_op(lambda ctx: None, backward=view == "backward", ops=ops)
        return tool

    @pytest.mark.parametrize("view", ["forward", "gradient"])
    def test_that_are_looked_for_among_forward_ones_are_named(self, backend, view):
        tool = self.tool(view, ["relu", "fake::ReluBackward0"])
        (warning,) = warned(tool, run=lambda: backend.run("relu"), times=2)
        assert "with backward=True alone: 'ReluBackward0' of Tool" in warning

    def test_are_named_where_nothing_else_ran(self, backend):
        (warning,) = warned(self.tool("forward", ["ReluBackward0"]), run=lambda: None)
        assert warning.count("'ReluBackward0' of Tool") == 1

    def test_are_not_named_of_a_tool_that_looks_at_them_backward_too(self, backend):
        tool = self.tool("backward", ["ReluBackward0"])
        tool.add_inst_for_op(lambda ctx: None, ops=["ReluBackward0"])
        (warning,) = warned(tool, run=lambda: backend.run("relu"))
        assert warning == "types of operators that never ran in this scope: 'ReluBackward0' of Tool"

    def test_are_not_named_of_a_tool_that_lists_candidates(self, backend):
        tool = self.tool("forward", ["ReluBackward0"])
        tool.lists_candidates = True
        assert warned(tool, run=lambda: backend.run("relu")) == []

    def test_are_not_named_where_a_forward_operator_of_the_type_ran(self, backend):
        tool = self.tool("forward", ["ReluBackward0"])
        assert warned(tool, run=lambda: backend.run("ReluBackward0")) == []
