"""These tests look at modules as operators: what a tool sees of their calls, and changes there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import amanda
from amanda.testing.adapter import assert_close, numbers
from amanda.testing.models import Sharing, sigmoid
from amanda.testing.probes import Record, host_and_pure

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from amanda.testing.adapter import Array

X = numbers(2, 3)
SHIFT = numbers(2, 4, seed=50)
W = numbers(3, 4, seed=51)
# What its modules compute, written out by hand.
SUM = X @ W + SHIFT
ONCE = sigmoid(SUM)
TWICE = sigmoid(ONCE)
OUTPUT = TWICE * SUM


class AtModules(amanda.Tool):
    """This tool calls an analysis routine for modules, and notes which they are.

    Args:
        analyze: the analysis routine.
        modules: globs of paths.
        types: classes.
        require_outputs: ask when the outputs are known.

    Attributes:
        analyzed: the operators that it was asked about.
    """

    def __init__(
        self,
        analyze: Callable[[amanda.OpContext], object] = lambda ctx: None,
        modules: Collection[str] | None = None,
        types: Collection[str] | None = None,
        require_outputs: bool = False,
    ) -> None:
        super().__init__()
        self.analyzed: list[amanda.Operator] = []
        self._analyze = analyze
        self.add_inst_for_module(self.look, require_outputs, modules=modules, types=types)

    def look(self, ctx: amanda.OpContext) -> None:
        """Note the module, and call the analysis routine."""
        self.analyzed.append(ctx.op)
        self._analyze(ctx)


def inserting(insertion: str, routine: Callable[..., Any], type: str, **options: Any) -> AtModules:
    """Return a tool that inserts a routine at modules of a class."""
    return AtModules(lambda ctx: getattr(ctx, insertion)(routine, **options), types=[type])


def of_sum(through: Array, beside: Array) -> dict[str, Array]:
    """Compute the nested model's gradients from the two that come in at its sum.

    Args:
        through: the one that comes through the activations.
        beside: the one that comes past them.
    """
    total = through + beside
    return {"x": total @ W.T, "shift": total, "w": X.T @ total}


def through_acts(grad: Array) -> Array:
    """Compute the gradient at the sum from the gradient of the activations' output."""
    return np.asarray(grad * TWICE * (1 - TWICE) * ONCE * (1 - ONCE), np.float32)


def assert_all_close(found: dict[str, Array], expected: dict[str, Array]) -> None:
    """Assert by name what :func:`assert_close` does."""
    for name, array in expected.items():
        assert_close(found[name], array)


class Modules(Sharing):
    """A module is seen as one operator: ``docs/semantics.md#modules``."""

    def nested_output(self, *tools: amanda.Tool) -> Array:
        """Return the nested model's output with these tools active."""
        model = self.shared_nested({"w": W})
        with amanda.apply(*tools):
            return model.forward({"x": X, "shift": SHIFT})

    def nested_gradients(self, *tools: amanda.Tool) -> dict[str, Array]:
        """Return the nested model's gradients with these tools active."""
        model = self.shared_nested({"w": W})
        with amanda.apply(*tools):
            return model.gradients(["x", "shift", "w"], {"x": X, "shift": SHIFT})

    def classes_and_layers(self, tool: AtModules) -> list[tuple[str, str]]:
        """List the classes and layers of the modules that a tool was asked about."""
        return [(operator.type, self.adapter.layer(operator)) for operator in tool.analyzed]

    # Where there are none

    def test_a_tool_that_wants_modules_is_refused_where_there_are_none(self) -> None:
        tool = AtModules()
        if "Modules" not in self.adapter.lacks:
            return
        refused = pytest.raises(amanda.UnsupportedError, match=r"AtModules: .*no modules")
        with refused, amanda.apply(tool):
            pass

    test_a_tool_that_wants_modules_is_refused_where_there_are_none.runs_always = True  # type: ignore[attr-defined]

    # What is seen

    def test_each_call_of_a_module_is_an_operator_of_its_class_and_path(self) -> None:
        tool = AtModules()
        self.nested_output(tool)
        seen = self.classes_and_layers(tool)
        assert [type for type, _ in seen] == ["Net", "Body", "Act", "Act"]
        assert [layer for _, layer in seen[1:]] == ["body", "act", "act"]
        assert len({operator.id for operator in tool.analyzed}) == 4
        for operator in tool.analyzed:
            assert operator.is_module
            assert operator.id.rpartition("/")[2].partition("#")[0] == operator.type

    def test_ids_are_the_same_at_each_run(self) -> None:
        model = self.adapter.nested({"w": W})
        found = []
        for _ in range(2):
            tool = AtModules()
            with amanda.apply(tool):
                for _ in range(2):
                    model.forward({"x": X, "shift": SHIFT})
            found.append([operator.id for operator in tool.analyzed])
        assert found[0] == found[1]
        assert len(found[0]) == 4

    def test_globs_and_classes_select(self) -> None:
        every = AtModules()
        self.nested_output(every)
        body = every.analyzed[1].scope
        for selected, expected in (
            (AtModules(modules=[body]), ["Body"]),
            (AtModules(modules=[f"{body}?*"]), ["Act", "Act"]),
            (AtModules(types=["Act"]), ["Act", "Act"]),
            (AtModules(modules=[body], types=["Net", "Body"]), ["Body"]),
        ):
            self.nested_output(selected)
            assert [type for type, _ in self.classes_and_layers(selected)] == expected

    def test_inputs_and_outputs_have_names(self) -> None:
        names: dict[str, list[str]] = {}

        def note(ctx: amanda.OpContext) -> None:
            names["in"], names["out"] = list(ctx.input_names), list(ctx.output_names)

        self.nested_output(AtModules(note, types=["Body"], require_outputs=True))
        assert names == {"in": ["x", "shift"], "out": ["sum", "twice.0"]}

    def test_routines_see_what_the_caller_gives_and_gets(self) -> None:
        seen: dict[str, list[Array]] = {}

        def note(*tensors: Any, at: str) -> None:
            seen[at] = [self.adapter.array(tensor).copy() for tensor in tensors]

        def analyze(ctx: amanda.OpContext) -> None:
            ctx.insert_before_op(note, at="before")
            ctx.insert_after_op(note, at="after")

        plain = self.nested_output()
        found = self.nested_output(AtModules(analyze, types=["Body"]))
        np.testing.assert_array_equal(found, plain)
        assert_close(found, OUTPUT)
        for array, expected in zip(seen["before"], (X, SHIFT), strict=True):
            np.testing.assert_array_equal(array, expected)
        for array, expected in zip(seen["after"], (SUM, TWICE), strict=True):
            assert_close(array, expected)

    def test_a_module_comes_around_what_runs_in_it(self) -> None:
        order: list[str] = []

        def analyze(ctx: amanda.OpContext) -> None:
            def routine(*tensors: Any, at: str) -> None:
                order.append(at)

            ctx.insert_before_op(routine, at=f"before {ctx.op.type}")
            ctx.insert_after_op(routine, at=f"after {ctx.op.type}")

        operators = amanda.Tool()
        operators.add_inst_for_op(analyze, ops=[self.adapter.types["sigmoid"]])
        self.nested_output(AtModules(analyze, types=["Body", "Act"]), operators)
        kind = self.adapter.types["sigmoid"]
        act = ["before Act", f"before {kind}", f"after {kind}", "after Act"]
        assert order == ["before Body", *act, *act, "after Body"]

    def test_operators_within_are_seen_as_without_it(self) -> None:
        plain, beside = Record(), Record()
        self.nested_output(plain)
        self.nested_output(beside, AtModules(lambda ctx: ctx.insert_after_op(lambda *_: None)))
        assert beside.ran == plain.ran

    # What is changed

    @host_and_pure
    def test_inputs_are_substituted(self, pure: bool) -> None:
        tool = inserting("insert_before_op", lambda s: s * 2, "Body", inputs=["shift"], pure=pure)
        total = X @ W + SHIFT * 2
        assert_close(self.nested_output(tool), sigmoid(sigmoid(total)) * total)

    @host_and_pure
    def test_outputs_are_substituted(self, pure: bool) -> None:
        tool = inserting("insert_after_op", lambda t: t * 2, "Body", outputs=[1], pure=pure)
        assert_close(self.nested_output(tool), TWICE * 2 * SUM)

    @host_and_pure
    def test_outputs_come_with_inputs(self, pure: bool) -> None:
        tool = inserting("insert_after_op", lambda a, x: a + x, "Act", with_inputs=[0], pure=pure)
        once = ONCE + SUM
        assert_close(self.nested_output(tool), (sigmoid(once) + once) * SUM)

    @host_and_pure
    def test_a_module_is_replaced(self, pure: bool) -> None:
        tool = inserting("replace_op", lambda x: x * 2, "Act", pure=pure)
        assert_close(self.nested_output(tool), SUM * 4 * SUM)

    @host_and_pure
    def test_a_replacement_may_run_the_module(self, pure: bool) -> None:
        tool = inserting("replace_op", lambda act, x: act(x) * 2, "Act", original=True, pure=pure)
        assert_close(self.nested_output(tool), sigmoid(ONCE * 2) * 2 * SUM)

    # Gradients

    @host_and_pure
    def test_gradients_of_outputs_are_substituted(self, pure: bool) -> None:
        tool = inserting("insert_on_grad_outputs", lambda g: g * 2, "Body", outputs=[1], pure=pure)
        assert_all_close(self.nested_gradients(tool), of_sum(through_acts(SUM * 2), TWICE))

    @host_and_pure
    def test_gradients_are_seen_where_a_parameter_alone_needs_one(self, pure: bool) -> None:
        tool = inserting("insert_on_grad_outputs", lambda g: g * 2, "Body", outputs=[1], pure=pure)
        model = self.shared_nested({"w": W})
        with amanda.apply(tool):
            found = model.gradients(["w"], {"x": X, "shift": SHIFT})
        assert_close(found["w"], of_sum(through_acts(SUM * 2), TWICE)["w"])

    @host_and_pure
    def test_gradients_of_inputs_are_substituted(self, pure: bool) -> None:
        tool = inserting(
            "insert_on_grad_inputs", lambda g: g * 2, "Body", inputs=["shift"], pure=pure
        )
        plain = of_sum(through_acts(SUM), TWICE)
        assert_all_close(self.nested_gradients(tool), {**plain, "shift": plain["shift"] * 2})

    @host_and_pure
    def test_gradients_come_with_the_forward_side(self, pure: bool) -> None:
        tool = inserting(
            "insert_on_grad_outputs",
            lambda g, shift, twice: g + shift * twice,
            "Body",
            outputs=[1],
            with_inputs=["shift"],
            with_outputs=[1],
            pure=pure,
        )
        grad = through_acts(SUM + SHIFT * TWICE)
        assert_all_close(self.nested_gradients(tool), of_sum(grad, TWICE))

    @host_and_pure
    def test_gradients_pass_straight_through_substitutes(self, pure: bool) -> None:
        tools = (
            inserting("insert_before_op", lambda s: s * 2, "Body", inputs=["shift"], pure=pure),
            inserting("insert_after_op", lambda t: t * 2, "Body", outputs=[1], pure=pure),
        )
        total = X @ W + SHIFT * 2
        once = sigmoid(total)
        twice = sigmoid(once)
        at_sum = total * twice * (1 - twice) * once * (1 - once) + twice * 2
        expected = {"x": at_sum @ W.T, "shift": at_sum, "w": X.T @ at_sum}
        assert_all_close(self.nested_gradients(*tools), expected)

    @host_and_pure
    def test_a_replaced_module_keeps_its_gradient(self, pure: bool) -> None:
        tool = inserting("replace_op", lambda x: x * 2, "Act", pure=pure)
        once = sigmoid(SUM)  # the first one's, at what it is given
        twice = sigmoid(SUM * 2)
        grad = SUM * twice * (1 - twice) * once * (1 - once)
        assert_all_close(self.nested_gradients(tool), of_sum(grad, SUM * 4))

    def test_looking_at_gradients_changes_nothing(self) -> None:
        def look(*tensors: Any) -> None:
            pass

        def analyze(ctx: amanda.OpContext) -> None:
            ctx.insert_on_grad_outputs(look)
            ctx.insert_on_grad_inputs(look)

        plain = self.nested_gradients()
        for name, array in self.nested_gradients(AtModules(analyze)).items():
            np.testing.assert_array_equal(array, plain[name])

    # Caching, errors

    def test_a_module_is_analyzed_once_in_a_scope(self) -> None:
        model, tool = self.shared_nested({"w": W}), AtModules()
        with amanda.apply(tool):
            for _ in range(3):
                model.forward({"x": X, "shift": SHIFT})
            assert len(tool.analyzed) == 4
            tool.invalidate()
            model.forward({"x": X, "shift": SHIFT})
        assert len(tool.analyzed) == 8

    def test_an_error_names_the_module(self) -> None:
        def fail(*tensors: Any) -> None:
            raise KeyError("lost")

        with pytest.raises(amanda.RoutineError, match="lost") as caught:
            self.nested_output(inserting("insert_before_op", fail, "Body"))
        assert caught.value.tool == "AtModules"
        assert "/Body" in caught.value.operator_id

    def test_after_the_scope_nothing_is_left(self) -> None:
        model = self.shared_nested({"w": W})
        plain = model.forward({"x": X, "shift": SHIFT})
        with amanda.apply(inserting("insert_after_op", lambda t: t * 2, "Body", outputs=[0])):
            changed = model.forward({"x": X, "shift": SHIFT})
        assert not np.array_equal(changed, plain)
        np.testing.assert_array_equal(model.forward({"x": X, "shift": SHIFT}), plain)
