"""Deciding once, keeping what was decided, and letting it go."""

import gc
import weakref
from types import SimpleNamespace

import amanda
import pytest
from amanda import Tool
from amanda._threads.active import Scope
from amanda.driving import ByOperator, Selection
from amanda.testing.packages import install
from fake_backend import FakeDriver, Noting, engine, execution, operator


def anything(*tensors, **options):
    pass


class TestWanted:
    def test_types_that_some_tool_names(self):
        found = engine(Noting(["conv2d"]), Noting(["relu", "conv2d"]))
        assert found.wanted == {"conv2d", "relu"}
        assert found.wants("relu")
        assert not found.wants("add")

    def test_all_of_them_if_one_tool_names_none(self):
        found = engine(Noting(["conv2d"]), Noting())
        assert found.wanted is None
        assert found.wants("add")

    def test_backward_types_are_traced_to_their_forward_types(self):
        class Driver(FakeDriver):
            def forward_types(self, types):
                return frozenset(type.removesuffix("_backward") for type in types)

        tool = Noting(["conv2d_backward"], backward=True)
        assert engine(tool, driver=Driver()).wanted == {"conv2d"}
        assert engine(tool).wanted is None

    def test_tools_are_asked_about_the_types_they_name(self):
        convolutions, everything = Noting(["conv2d"]), Noting()
        found = engine(convolutions, everything)
        for type in ("conv2d", "relu"):
            found.analyze(execution(operator(type)))
        assert convolutions.asked == ["a/conv2d"]
        assert everything.asked == ["a/conv2d", "a/relu"]

    def test_operators_to_opt_in_to_are_shown_to_those_who_name_them_or_ask_for_such(self):
        named, everything, asking = Noting(["adam"]), Noting(), Noting(opt_in=True)
        found = engine(named, everything, asking)
        found.analyze(execution(operator("adam", opt_in=True)))
        assert named.asked == ["a/adam"]
        assert everything.asked == []
        assert asking.asked == ["a/adam"]

    @pytest.mark.parametrize("ops", [["conv2d"], ["conv2d_backward"], None])
    def test_a_backward_operator_is_found_by_its_type_or_that_of_its_operator(self, ops):
        tool, other = Noting(ops, backward=True), Noting(["relu"], backward=True)
        shown = execution(
            operator(), backward_operator=operator("conv2d_backward"), grad_outputs=[1]
        )
        engine(tool, other).backward_plan(shown)
        assert tool.asked == ["a/conv2d_backward"]
        assert other.asked == []


class ByInputs:
    """Says ``PAIR`` of an operator with two inputs, ``OTHER`` of any other."""

    def select(self, subscription, driver):
        native = frozenset({"contract"})
        return Selection(subscription, subscription.view, subscription.ops, native)

    def translate(self, execution, driver):
        type = "PAIR" if len(execution.inputs) == 2 else "OTHER"
        return SimpleNamespace(types=[type], analysis=lambda native: native)


BY_INPUTS = ByInputs()


class TestInside:
    """Operators that run inside an operator that is wanted as one."""

    def test_nobody_looks_who_takes_it_as_one(self):
        assert engine(Noting(["linear", "matmul"])).inside("linear") is None
        assert engine(Noting()).inside("linear") is None

    def test_whoever_does_not_want_it_looks(self):
        found = engine(Noting(["matmul"]))
        assert found.inside("linear") is found

    def test_each_tool_decides_for_itself(self):
        outer, inner = Noting(["linear"]), Noting(["matmul"])
        inside = engine(outer, inner).inside("linear")
        inside.analyze(execution(operator("matmul")))
        inside.analyze(execution(operator("linear")))
        assert outer.asked == []
        assert inner.asked == ["a/matmul"]

    def test_types_with_the_same_tools_share_what_is_decided(self):
        found = engine(Noting(["linear", "bilinear"]), Noting(["matmul"]))
        assert found.inside("linear") is found.inside("bilinear")

    def test_what_is_decided_inside_is_forgotten_with_the_rest(self):
        outer, inner = Noting(["linear"]), Noting(["matmul"])
        inside = engine(outer, inner).inside("linear")
        shown = execution(operator("matmul"))
        inside.analyze(shown)
        inner.invalidate()
        inside.analyze(shown)
        assert inner.asked == ["a/matmul"] * 2

    def test_which_of_several_translations_it_is_decides_for_each_operator(
        self, tmp_path, monkeypatch
    ):
        announced = f"[amanda.context_maps]\nfake:loud = {__name__}:BY_INPUTS\n"
        install(tmp_path, "loud", entry_points=announced)
        monkeypatch.syspath_prepend(tmp_path)
        tool, native = Tool(namespace="loud"), Noting(["contract", "relu"])
        tool.add_inst_for_op(lambda ctx: None, ops=["PAIR"])
        found = engine(tool, native)
        assert found.inside("contract") is None
        assert found.analyze(execution(operator("contract"))).inside is None
        inside = found.analyze(execution(operator("contract"), inputs=(1, 2, 3))).inside
        assert inside.wanted == {"contract"}
        inside.analyze(execution(operator("relu")))
        assert native.asked == ["a/contract", "a/contract"]

    def test_the_cache_is_off_inside_too(self):
        found = engine(Noting(["linear"]), Noting(["matmul"]))
        before, during = found.inside("linear"), found
        during.set_caching(False)
        assert not before.caching


class TestDecisions:
    def test_a_failure_of_one_tool_does_not_lose_what_others_decided(self):
        fine, fails = Noting(), Tool()
        fails.add_inst_for_op(lambda ctx: 1 / 0)
        found, shown = engine(fine, fails), execution(operator())
        for _ in range(2):
            with pytest.raises(amanda.RoutineError, match="ZeroDivisionError"):
                found.analyze(shown)
        assert fine.asked == ["a/conv2d"]

    def test_an_error_of_ours_reaches_the_user_as_it_is(self):
        tool = Tool()
        tool.add_inst_for_op(lambda ctx: ctx.insert_before_op(print, inputs=[9]))
        with pytest.raises(amanda.ActionError):
            engine(tool).analyze(execution(operator()))

    def test_insertions_keep_the_order_of_tools_whenever_they_were_made(self):
        first, second = Tool(), Tool()
        first.add_inst_for_op(
            lambda ctx: ctx.insert_after_op(anything, tool="first"), require_outputs=True
        )
        second.add_inst_for_op(lambda ctx: ctx.insert_after_op(anything, tool="second"))
        found, shown = engine(first, second), execution(operator(), outputs=[3])
        plan = found.analyze(shown)
        assert [action.kwargs["tool"] for action in plan.after] == ["second"]
        plan = found.complete(plan, shown)
        assert [action.kwargs["tool"] for action in plan.after] == ["first", "second"]
        assert found.plan(shown.operator) is plan

    def test_innermost_tools_are_next_to_the_operator(self):
        tools = [Tool(), Tool(), Tool()]
        for number, tool in enumerate(tools):

            def analyze(ctx, number=number):
                ctx.insert_before_op(anything, number=number)
                ctx.insert_after_op(anything, number=number)

            tool.add_inst_for_op(analyze)
        tools[1].innermost = True
        plan = engine(*tools).analyze(execution(operator()))
        assert [action.kwargs["number"] for action in plan.before] == [0, 2, 1]
        assert [action.kwargs["number"] for action in plan.after] == [1, 0, 2]

    def test_an_operator_without_actions_is_idle(self):
        assert engine(Noting(["relu"])).analyze(execution(operator())).is_noop
        assert engine(Noting()).analyze(execution(operator())).is_noop

    @pytest.mark.parametrize("view", ["backward", "gradient", "require_outputs"])
    def test_an_operator_that_someone_still_wants_to_see_is_not(self, view):
        tool = Tool()
        if view == "gradient":
            tool.add_inst_for_gradient(print)
        else:
            tool.add_inst_for_op(print, **{view: True})
        assert not engine(tool).analyze(execution(operator())).is_noop

    def test_invalidating_a_tool_asks_those_that_depend_on_it_too(self):
        base, middle, top, other = Noting(), Noting(), Noting(), Noting()
        middle.depends_on(base)
        top.depends_on(middle)
        found, shown = engine(base, middle, top, other), execution(operator())
        found.analyze(shown)
        base.invalidate()
        found.analyze(shown)
        assert [len(tool.asked) for tool in (base, middle, top, other)] == [2, 2, 2, 1]

    def test_clear_cache_reaches_every_engine(self):
        one, other = Noting(), Noting()
        engines, shown = [engine(one), engine(other)], execution(operator())
        for found in engines:
            found.analyze(shown)
        amanda.clear_cache()
        for found in engines:
            found.analyze(shown)
        assert len(one.asked) == len(other.asked) == 2


class TestLeftScopes:
    """A backward may run after the scope of its forward."""

    def test_what_a_driver_has_made_of_a_plan_goes_with_the_plan(self):
        found, running = engine(Noting(require_outputs=True)), execution(operator())
        plan = found.analyze(running)
        found.ready.keep(running.operator, "made of it")
        found.complete(plan, running)
        assert running.operator.serial not in found.ready
        found.ready.keep(running.operator, "made of it")
        found.forget()
        assert not found.ready

    def test_tools_that_are_gone_are_not_asked(self):
        tool, scope = Noting(backward=True), Scope()
        found = engine(tool, scope=scope)
        scope.open = False
        shown = execution(
            operator(), backward_operator=operator("conv2d_backward"), grad_outputs=[1]
        )
        found.backward_plan(shown)
        assert tool.asked == []
        assert not found.open

    def test_what_they_decided_is_not_live(self):
        tool, scope = Tool(), Scope()
        tool.add_inst_for_gradient(lambda ctx: ctx.insert_on_grad_outputs(print))
        found = engine(tool, scope=scope)
        plan = found.gradient_plan(execution(operator(), grad_outputs=[1]))
        assert found.live(plan.before) == plan.before != ()
        scope.open = False
        assert found.live(plan.before) == ()


class TestLifetimes:
    def test_a_table_forgets_an_operator_that_is_gone(self):
        table, kept, gone = ByOperator(), operator(), operator()
        table.keep(kept, 1)
        table.keep(gone, 2)
        table.keep(gone, 3)
        serial = gone.serial
        del gone
        assert dict(table) == {kept.serial: 1}
        assert serial not in table

    def test_a_table_that_is_gone_leaves_nothing_behind(self):
        table, kept = ByOperator(), operator()
        table.keep(kept, 1)
        reference = weakref.ref(table)
        del table
        assert reference() is None
        del kept

    def test_clearing_a_table_does_not_end_that(self):
        table, one = ByOperator(), operator()
        table.keep(one, 1)
        table.clear()
        table.keep(one, 2)
        del one
        assert dict(table) == {}

    def test_what_routines_hold_does_not_keep_an_operator(self):
        tool = Tool()

        def analyze(ctx):
            ctx.insert_before_op(anything, context=ctx, operator=ctx.op, backward=ctx.backward_op)

        tool.add_inst_for_op(analyze)
        found, one = engine(tool), operator()
        found.analyze(execution(one))
        reference = weakref.ref(one)
        del one
        gc.collect()
        assert reference() is None
        assert len(found.records) == 0
